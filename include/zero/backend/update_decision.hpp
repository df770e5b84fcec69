#pragma once

#include "../core/detail/namespace.hpp"
#include "../ops/counter_random.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief What the decision of a step leaves for the update, in the backend's memory.
struct UpdateDecision {
    float factor = 1.0F; ///< multiplies every gradient
    bool skip = false;   ///< the update changes nothing
    std::uint64_t random_key =
        0; ///< of this step's random numbers, where parameters are rounded stochastically
};

/// @brief Where the weights of a slice are, with what the decision of a step says about them.
template <class Weights>
constexpr Weights decided(Weights weights, UpdateDecision const& decision) noexcept {
    if constexpr (requires { weights.key; }) {
        weights.key = decision.random_key;
    }
    return weights;
}

} // namespace ZERO_NAMESPACE
