#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/updated_value.hpp"
#include "owned_slice.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

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
