#pragma once

#include "../core/float16.hpp"
#include "../core/policy_category.hpp"

#include <concepts>

namespace zero {

struct ParametersOptions {};

/// @brief The type that parameters are stored, gathered and used in.
template <class T>
struct Parameters {
    using policy_category = ParametersCategory;
    using Options = ParametersOptions;
    using Type = T;
};

/// @brief A policy that names the parameter type.
template <class P>
concept ParametersPolicy = std::same_as<typename P::policy_category, ParametersCategory> && requires { typename P::Options; } && StorageType<typename P::Type>;

/// @brief Reports each reason why `P` is not a `ParametersPolicy` as one error.
template <class P>
consteval bool diagnose_parameters() {
    static_assert(requires { typename P::Options; }, "zero: a Parameters policy needs a member type 'Options' (an empty struct if it has none).");
    static_assert(requires { typename P::Type; }, "zero: a Parameters policy needs a member type 'Type'.");
    if constexpr (requires { typename P::Type; }) {
        static_assert(StorageType<typename P::Type>, "zero: parameters are float, zero::bfloat16 or zero::float16; write zero::Parameters<zero::bfloat16>, for example.");
    }
    return ParametersPolicy<P>;
}

} // namespace zero
