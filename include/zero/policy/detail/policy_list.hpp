#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/require_cxx20.hpp"

#include <concepts>
#include <type_traits>

/// @file
/// @brief Selects from the policies of a stage the one that decides a category.
/// `diagnose_policies.hpp` checks the list.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept HasCategory = requires { typename P::policy_category; };

template <class P, class Category>
concept NamesCategory = HasCategory<P> && std::same_as<typename P::policy_category, Category>;

/// @brief The first policy of a category, or the default.
template <class Category, class Default, class... Policies>
struct Select {
    using type = Default;
};

template <class Category, class Default, class First, class... Rest>
struct Select<Category, Default, First, Rest...> : Select<Category, Default, Rest...> {};

template <class Category, class Default, class First, class... Rest>
    requires NamesCategory<First, Category>
struct Select<Category, Default, First, Rest...> {
    using type = First;
};

template <class Category, class Default, class... Policies>
using select_t = typename Select<Category, Default, Policies...>::type;

/// @brief A list of policies as one type.
template <class... Policies>
struct PolicyPack {};

/// @brief Whether `Replacement` takes the place of `Policy`. A non-policy replaces nothing; the
/// stage that contains it reports the error.
template <class Replacement, class Policy>
concept Replaces =
    HasCategory<Replacement> && NamesCategory<Policy, typename Replacement::policy_category>;

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
               std::conditional_t<Replaces<Replacement, First>, PolicyPack<Kept...>,
                                  PolicyPack<Kept..., First>>,
               Rest...> {};

} // namespace ZERO_NAMESPACE::detail
