#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief The role of an array in the training state of one parameter type.
enum class ArrayKind : std::uint8_t {
    parameter,
    master,      ///< MasterWeights
    remainder,   ///< SplitMasterWeights: the lower 16 bits
    rounded_up,  ///< SplitMasterWeights: one bit per element
    state,       ///< a state of the optimizer
    state_scale, ///< BlockScaledState: the scales of a state
    gradient     ///< reduced gradients, which exist inside a step only
};

/// @brief The form of an array, the same for all slices and on every rank.
struct ArrayForm {
    ArrayKind kind = ArrayKind::parameter;
    std::size_t index = 0;      ///< index of the optimizer's state; 0 for other kinds
    DType dtype = DType::bytes; ///< type of an item; `bytes` also for 16-bit remainders
    std::size_t item_bytes = 0;
    /// An item belongs to one element, or to a group of elements that starts at a multiple of its
    /// size: a scale to 64 elements, a byte of bits to 8.
    std::size_t item_elements = 1;

    /// @brief Returns the bytes of `elements` elements that start at an item.
    [[nodiscard]] constexpr std::size_t bytes(std::size_t elements) const noexcept {
        return (elements + item_elements - 1) / item_elements * item_bytes;
    }
};

} // namespace ZERO_NAMESPACE::detail
