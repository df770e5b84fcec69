#pragma once

#include "../core/convert.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/split_float.hpp"
#include "../ops/block_scale.hpp"
#include "../policy/master_weights_policy.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief The part of one parameter that this rank updates, with its state. Empty spans: there is
/// no such state.
///
/// The spans are what is stored, bit for bit; `master_weight` and `state` are what it means
/// whatever the policy. On a device they are device memory.
/// @tparam Value type of the parameter, const where it is read only
template <class Config, class Types, class Value = typename Types::Parameter>
struct OwnedSlice {
    std::size_t parameter = 0; ///< number of registration
    std::size_t begin = 0;     ///< first element, counted inside the parameter
    std::span<Value> values;   ///< the parameter
    std::span<typename Types::Master>
        master; ///< MasterWeights: the copy that the optimizer updates
    std::array<std::span<typename Config::OptimizerState::Type>, Config::Optimizer::states>
        states; ///< one span for each state of the optimizer
    std::array<std::span<float>, Config::Optimizer::states>
        scales; ///< BlockScaledState: of 64 states each
    std::span<std::uint16_t>
        remainder; ///< SplitMasterWeights: the lower bits of the master weights
    std::span<std::uint8_t>
        rounded_up; ///< SplitMasterWeights: eight elements to a byte, the first in the lowest bit

    /// @brief The weight that the next step starts from. @param i less than `values.size()`
    [[nodiscard]] float master_weight(std::size_t i) const {
        if constexpr (Types::master_form == MasterForm::split) {
            return join({values[i], remainder[i], (rounded_up[i / 8] >> i % 8 & 1U) != 0});
        } else if constexpr (Types::has_master) {
            return to_float(master[i]);
        } else {
            return to_float(values[i]);
        }
    }

    /// @brief A state of the optimizer as the functor reads it.
    [[nodiscard]] float state(std::size_t index, std::size_t i) const {
        float const stored = to_float(states[index][i]);
        return scales[index].empty() ? stored
                                     : stored * scales[index][i / ops::scaled_block_elements];
    }
};

} // namespace ZERO_NAMESPACE
