#pragma once

#include "../../core/detail/require_cxx20.hpp"

#include "../../core/detail/namespace.hpp"
#include "../../policy/detail/policy_list.hpp"
#include "policy_pack.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether `Replacement` takes the place of `Policy`. A non-policy replaces nothing; the
/// stage that contains it reports the error.
template <class Replacement, class Policy>
consteval bool replaces() {
    if constexpr (HasCategory<Replacement>) {
        return is_in<typename Replacement::policy_category, Policy>();
    } else {
        return false;
    }
}

/// @brief Replaces the policy of the same category in a list, or adds one. `ZeroStage::with` uses
/// it.
/// @tparam Kept a `PolicyPack` of the policies that are kept so far
template <class Replacement, class Kept, class... Policies>
struct Exchange;

template <class Replacement, class... Kept>
struct Exchange<Replacement, PolicyPack<Kept...>> {
    template <template <int, class...> class Stage, int N>
    using in = Stage<N, Kept..., Replacement>;
};

template <class Replacement, class... Kept, class First, class... Rest>
struct Exchange<Replacement, PolicyPack<Kept...>, First, Rest...>
    : Exchange<Replacement,
               std::conditional_t<replaces<Replacement, First>(), PolicyPack<Kept...>,
                                  PolicyPack<Kept..., First>>,
               Rest...> {};

} // namespace ZERO_NAMESPACE::detail
