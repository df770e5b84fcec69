#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../policy/master_weights_policy.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The types that one kind of parameters passes through in a step. A model has one set per
/// parameter type.
template <class P, class G, class C, class A, class MasterPolicy>
struct TypeSet {
    using Parameter = P;
    using Gradient = G;
    using Communication = C;
    using Accumulation = A;
    using MasterWeights = MasterPolicy;
    static constexpr MasterForm master_form = MasterPolicy::form;
    static constexpr bool has_master = master_form == MasterForm::copied; ///< as separate arrays
    using Master = std::conditional_t<has_master, typename MasterPolicy::Type, Parameter>;
};

} // namespace ZERO_NAMESPACE::detail
