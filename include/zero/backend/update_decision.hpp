#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The decision of a step, as the update reads it. It lies in the backend's memory.
struct UpdateDecision {
    float factor = 1.0F;          ///< multiplies every gradient
    bool skip = false;            ///< if true, the update changes nothing
    std::uint64_t random_key = 0; ///< key of this step's random numbers, for stochastic rounding
};

/// @brief Returns the pointers to the weights, with the random key of the step if they have one.
template <class Weights>
constexpr Weights decided(Weights weights, UpdateDecision const& decision) noexcept {
    if constexpr (requires { weights.key; }) {
        weights.key = decision.random_key;
    }
    return weights;
}

/// @brief Returns whether the step leaves the slices of a row, a group or a parameter, as they are.
template <class Row>
constexpr bool is_left(Row const& row) noexcept {
    if constexpr (requires { row.is_left; }) {
        return row.is_left;
    } else {
        return false;
    }
}

} // namespace ZERO_NAMESPACE
