#pragma once

#include "../../core/detail/namespace.hpp"

#include <concepts>

/// @file
/// @brief Selects from the policies of a stage the one that decides a category.
/// `diagnose_policies.hpp` checks the list.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept HasCategory = requires { typename P::policy_category; };

/// @brief True if `P` is a policy of the category.
template <class Category, class P>
consteval bool is_in() {
    if constexpr (HasCategory<P>) {
        return std::same_as<typename P::policy_category, Category>;
    } else {
        return false;
    }
}

/// @brief The first policy of a category, or the default.
template <class Category, class Default, class... Policies>
struct Select {
    using type = Default;
};

template <class Category, class Default, class First, class... Rest>
struct Select<Category, Default, First, Rest...> : Select<Category, Default, Rest...> {};

template <class Category, class Default, class First, class... Rest>
    requires(is_in<Category, First>())
struct Select<Category, Default, First, Rest...> {
    using type = First;
};

template <class Category, class Default, class... Policies>
using select_t = typename Select<Category, Default, Policies...>::type;

} // namespace ZERO_NAMESPACE::detail
