#pragma once

#include "../../core/detail/namespace.hpp"
#include "category_traits.hpp"
#include "policy_list.hpp"

#include <cstddef>

/// @file
/// @brief Reports why the policies of a stage are refused, one by one and as a list. `ZeroStage`
/// uses it; `CategoryTraits` holds the texts of each category, and `diagnose_stage.hpp` refuses
/// compositions of valid policies.

namespace ZERO_NAMESPACE::detail {

/// @brief True if `P` is a complete model of the concept of its category.
template <class P>
consteval bool is_valid_policy() {
    if constexpr (HasCategory<P>) {
        return CategoryTraits<typename P::policy_category>::template is_model<P>;
    } else {
        return false;
    }
}

/// @brief Reports why `P` is rejected: it is not a policy, or it does not satisfy its concept.
template <class P>
consteval bool diagnose_policy() {
    static_assert(HasCategory<P>,
                  "zero::ZeroStage: a template argument is not a policy (it has no member type "
                  "'policy_category'); "
                  "pass policies such as zero::AdamW or zero::Parameters<zero::bfloat16>.");
    if constexpr (HasCategory<P> && !is_valid_policy<P>()) {
        return CategoryTraits<typename P::policy_category>::template diagnose<P>();
    }
    return is_valid_policy<P>();
}

/// @brief True if at most one of the policies belongs to the category.
template <class Category, class... Policies>
inline constexpr bool is_single =
    (std::size_t{0} + ... + (is_in<Category, Policies>() ? 1U : 0U)) <= 1;

/// @brief True if no other policy belongs to the category of `P`.
template <class P, class... Policies>
consteval bool is_only_one() {
    if constexpr (HasCategory<P>) {
        return is_single<typename P::policy_category, Policies...>;
    } else {
        return true;
    }
}

/// @brief True if no category occurs twice.
template <class... Policies>
inline constexpr bool are_distinct = (is_only_one<Policies, Policies...>() && ...);

/// @brief Reports which category occurs twice among valid policies. Without the error, one of the
/// two would be dropped silently.
template <class... Policies>
consteval bool diagnose_duplicates() {
    return (CategoryTraits<typename Policies::policy_category>::template diagnose_single<
                is_only_one<Policies, Policies...>()>()
            && ...);
}

} // namespace ZERO_NAMESPACE::detail
