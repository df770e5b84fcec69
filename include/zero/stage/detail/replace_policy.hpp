#pragma once

#include "../../core/detail/require_cxx20.hpp"

#include "../../core/detail/namespace.hpp"
#include "../../policy/detail/policy_list.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

template <class... Policies>
struct PolicyPack {};

/// @brief What is no policy replaces none; the stage it then stands in says what it is.
template <class Replacement, class Policy>
consteval bool replaces() {
    if constexpr (HasCategory<Replacement>) {
        return is_in<typename Replacement::policy_category, Policy>();
    } else {
        return false;
    }
}

/// @brief The policies of a list that are not of a category, and one more.
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
