#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"

#include <concepts>

namespace ZERO_NAMESPACE {

/// @brief The types in which parameters are stored, gathered and used. Most models have one. Each
/// type has its own flat buffers.
template <class... T>
struct Parameters {
    using policy_category = ParametersCategory;

    /// @brief True if U is one of the types.
    template <class U>
    static constexpr bool contains = (std::same_as<T, U> || ...);
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// Only `Parameters` itself names parameter types.
template <class P>
inline constexpr bool are_parameter_types = false;

/// At least one type, each of them storable, none twice.
template <class... T>
inline constexpr bool are_parameter_types<Parameters<T...>> =
    sizeof...(T) != 0 && (StorageType<T> && ...)
    && ((0 + ... + (std::same_as<T, float> ? 1 : 0)) <= 1)
    && ((0 + ... + (std::same_as<T, bfloat16> ? 1 : 0)) <= 1)
    && ((0 + ... + (std::same_as<T, float16> ? 1 : 0)) <= 1);

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief The policy that names the parameter types. `Parameters` is the only model.
template <class P>
concept ParametersPolicy = detail::are_parameter_types<P>;

/// @brief Reports why `P` is not a `ParametersPolicy`.
template <class P>
consteval bool diagnose_parameters() {
    static_assert(
        ParametersPolicy<P>,
        "zero: parameters are float, zero::bfloat16 or zero::float16, each at most once; write "
        "zero::Parameters<zero::bfloat16>, or zero::Parameters<zero::bfloat16, float> for a model "
        "with both.");
    return ParametersPolicy<P>;
}

} // namespace ZERO_NAMESPACE
