#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/parameters_requirements.hpp"

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
