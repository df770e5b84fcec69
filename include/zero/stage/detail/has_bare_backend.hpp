#pragma once

#include "../../backend/backend.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../policy/detail/policy_list.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Whether a policy is a communicator whose backend is incomplete. Collectives may need only
/// the queues of a backend; an engine needs all of it.
template <class P>
consteval bool has_bare_backend() {
    if constexpr (is_in<CommunicatorCategory, P>()) {
        return requires { requires !Backend<typename P::Backend>; };
    } else {
        return false;
    }
}

} // namespace ZERO_NAMESPACE::detail
