#pragma once

#include "../core/convert.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/split_float.hpp"
#include "../ops/block_scale.hpp"
#include "../ops/power_codes.hpp"
#include "../policy/master_weights_policy.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

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
        if constexpr (Config::OptimizerState::is_block_scaled) {
            return ops::state_value(states[index][i],
                                    scales[index][i / ops::scaled_block_elements]);
        } else {
            return to_float(states[index][i]);
        }
    }
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief The type of the parameter values in an update: const if they are rounded from master
/// weights.
template <class Types>
using UpdatedValue = std::conditional_t<Types::has_master, typename Types::Parameter const,
                                        typename Types::Parameter>;

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief The argument of a caller-defined update: a slice of a parameter that this rank updates,
/// and its gradient.
///
/// The value of the gradient is `to_float(gradient[i]) * factor`: unscaled, averaged and clipped.
/// If there are master weights, `values` is read-only, because it is rounded from them.
template <class Config, class Types>
struct SliceWithGradient : OwnedSlice<Config, Types, detail::UpdatedValue<Types>> {
    std::span<typename Types::Accumulation const> gradient; ///< reduced, still scaled
    float factor = 1.0F;        ///< unscales, averages and clips the gradient
    double learning_rate = 0.0; ///< as given to `step`
    std::size_t group = 0;      ///< parameter group
    std::uint64_t update = 1;   ///< number of this update of the parameter, from 1, for a bias
                                ///< correction

    /// @brief Returns what the update writes: the master weights if there are any, otherwise the
    /// values.
    [[nodiscard]] std::span<typename Types::Master> weights() const noexcept {
        if constexpr (Types::has_master) {
            return this->master;
        } else {
            return this->values;
        }
    }
};

} // namespace ZERO_NAMESPACE
