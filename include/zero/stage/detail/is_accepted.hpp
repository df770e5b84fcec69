#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../policy/detail/diagnose_policies.hpp"
#include "conflict.hpp"
#include "conflict_in.hpp"
#include "has_bare_backend.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the policies form a stage. `diagnose_stage` says why not.
template <int N, class... Policies>
consteval bool is_accepted() {
    if constexpr ((has_bare_backend<Policies>() || ...) || !(is_valid_policy<Policies>() && ...)
                  || !are_distinct<Policies...>) {
        return false;
    } else {
        return conflict_in<N, Policies...>() == Conflict::none;
    }
}

} // namespace ZERO_NAMESPACE::detail
