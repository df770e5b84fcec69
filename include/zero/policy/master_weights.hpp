#pragma once

#include "../core/float16.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <type_traits>

namespace zero {

struct MasterWeightsOptions {};

/// @brief The optimizer updates a copy of the weights in this type; the parameter is its value rounded once.
template <class T>
struct MasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = T;
};

/// @brief The parameter is its own master: no copy. For 16-bit parameters small updates are then rounded away.
struct NoMasterWeights {
    using policy_category = MasterWeightsCategory;
    using Options = MasterWeightsOptions;
    using Type = void;
};

/// @brief A policy that names the type of the master weights, or void for none.
template <class P>
concept MasterWeightsPolicy = std::same_as<typename P::policy_category, MasterWeightsCategory> && requires { typename P::Options; }
                           && (std::is_void_v<typename P::Type> || std::is_same_v<typename P::Type, float>);

/// @brief Reports each reason why `P` is not a `MasterWeightsPolicy` as one error.
template <class P>
consteval bool diagnose_master_weights() {
    static_assert(requires { typename P::Options; }, "zero: a MasterWeights policy needs a member type 'Options' (an empty struct if it has none).");
    static_assert(requires { typename P::Type; }, "zero: a MasterWeights policy needs a member type 'Type' (void for none).");
    if constexpr (requires { typename P::Type; }) {
        static_assert(std::is_void_v<typename P::Type> || std::is_same_v<typename P::Type, float>,
                      "zero: master weights are float; write zero::MasterWeights<float> or zero::NoMasterWeights.");
    }
    return MasterWeightsPolicy<P>;
}

} // namespace zero
