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

/// @brief The slice of one parameter that this rank updates, with its state. An empty span means
/// that there is no such state.
///
/// The spans view the stored bits. `master_weight` and `state` interpret them, whatever the policy.
/// On a device the spans are device memory.
/// @tparam Value type of the parameter, const if it is read-only
template <class Config, class Types, class Value = typename Types::Parameter>
struct OwnedSlice {
    std::size_t parameter = 0; ///< registration index
    std::size_t begin = 0;     ///< offset of the first element in the parameter
    std::span<Value> values;   ///< the parameter
    std::span<typename Types::Master>
        master; ///< MasterWeights: the copy that the optimizer updates
    std::array<std::span<typename Config::OptimizerState::Type>, Config::Optimizer::states>
        states; ///< one span per state of the optimizer
    std::array<std::span<float>, Config::Optimizer::states>
        scales; ///< BlockScaledState: one scale per 64 values of a state
    std::span<std::uint16_t>
        remainder; ///< SplitMasterWeights: the lower bits of the master weights
    std::span<std::uint8_t> rounded_up; ///< SplitMasterWeights: one bit per element, eight elements
                                        ///< to a byte, the first in the lowest bit

    /// @brief Returns the weight that the next step starts from. @param i less than `values.size()`
    [[nodiscard]] float master_weight(std::size_t i) const {
        if constexpr (Types::master_form == MasterForm::split) {
            return join({values[i], remainder[i], (rounded_up[i / 8] >> i % 8 & 1U) != 0});
        } else if constexpr (Types::has_master) {
            return to_float(master[i]);
        } else {
            return to_float(values[i]);
        }
    }

    /// @brief Returns a state of the optimizer as the functor reads it.
    /// @param index number of the state, @param i less than `values.size()`
    [[nodiscard]] float state(std::size_t index, std::size_t i) const {
        float const stored = to_float(states[index][i]);
        return scales[index].empty() ? stored
                                     : stored * scales[index][i / ops::scaled_block_elements];
    }
};

} // namespace ZERO_NAMESPACE
