#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../policy/master_weights_policy.hpp"
#include "../../policy/parameters.hpp"
#include "conflict.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns why parameters of one type cannot have these master weights, or `none`.
template <StorageType Parameter, MasterWeightsPolicy Policy>
constexpr Conflict master_conflict() noexcept {
    if constexpr (Policy::form == MasterForm::copied) {
        constexpr auto digits = []<class T>(T) {
            return std::is_same_v<T, float> ? 24 : std::is_same_v<T, float16> ? 11 : 8;
        };
        constexpr int kept = digits(typename Policy::Type{});
        constexpr int needed = digits(Parameter{});
        return kept < needed    ? Conflict::master_loses_bits
               : kept == needed ? Conflict::master_of_itself
                                : Conflict::none;
    } else if constexpr (Policy::form == MasterForm::split) {
        return std::is_same_v<Parameter, bfloat16> ? Conflict::none : Conflict::split_of_other;
    } else if constexpr (Policy::form == MasterForm::stochastic) {
        return std::is_same_v<Parameter, float> ? Conflict::rounding_of_float : Conflict::none;
    } else {
        return Conflict::none;
    }
}

/// @brief Returns the first such conflict in a model. Float parameters beside 16-bit ones are their
/// own master weights, whatever the policy.
template <MasterWeightsPolicy Policy, StorageType... Parameter>
constexpr Conflict master_conflict_of_all() noexcept {
    if constexpr ((std::is_same_v<Parameter, float> && ...)) {
        return master_conflict<float, Policy>();
    } else {
        Conflict first = Conflict::none;
        ((first = first == Conflict::none && !std::is_same_v<Parameter, float>
                      ? master_conflict<Parameter, Policy>()
                      : first),
         ...);
        return first;
    }
}

/// @brief The same for the parameter types of a `Parameters` policy.
template <class MasterPolicy, class ParameterTypes>
struct MasterConflict;

template <class MasterPolicy, class... P>
struct MasterConflict<MasterPolicy, Parameters<P...>> {
    static constexpr Conflict value = master_conflict_of_all<MasterPolicy, P...>();
};

} // namespace ZERO_NAMESPACE::detail
