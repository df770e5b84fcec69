#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The decision of a step, as the update reads it. It is in the backend's memory.
/// `DecideStep` writes it (`stage/detail/decision/decide_step.hpp`), or the caller of an update.
struct UpdateDecision {
    float factor = 1.0F;          ///< multiplies every gradient of a group that is clipped
    bool skip = false;            ///< if true, the update changes nothing
    std::uint64_t random_key = 0; ///< key of this step's random numbers, for stochastic rounding
};

/// @brief Returns the factor of a group's gradients. Each group of an engine has its own, because a
/// group may be left out of clipping.
template <class Group>
ZERO_HOST_DEVICE constexpr float factor_of(Group const& group,
                                           UpdateDecision const& decision) noexcept {
    if constexpr (requires { group.factor; }) {
        return group.factor;
    } else {
        return decision.factor;
    }
}

/// @brief Returns the pointers to weights or states, with the random key of the step if they have
/// one.
template <class Pointers>
ZERO_HOST_DEVICE constexpr Pointers decided(Pointers pointers,
                                            UpdateDecision const& decision) noexcept {
    if constexpr (requires { pointers.key; }) {
        pointers.key = decision.random_key;
    }
    return pointers;
}

/// @brief Returns whether the step leaves the slices of a row, a group or a parameter, as they are.
template <class Row>
ZERO_HOST_DEVICE constexpr bool is_left(Row const& row) noexcept {
    if constexpr (requires { row.is_left; }) {
        return row.is_left;
    } else {
        return false;
    }
}

} // namespace ZERO_NAMESPACE
