#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../policy/master_weights.hpp"
#include "../../policy/master_weights_policy.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The types that parameters of one kind have on their way: a model has one such set for
/// each of its parameter types.
template <class P, class G, class C, class A, class MasterPolicy>
struct TypeSet {
    using Parameter = P;
    using Gradient = G;
    using Communication = C;
    using Accumulation = A;
    using MasterWeights = MasterPolicy;
    static constexpr MasterForm master_form = MasterPolicy::form;
    static constexpr bool has_master =
        master_form == MasterForm::copied; ///< in arrays of their own
    using Master = std::conditional_t<has_master, typename MasterPolicy::Type, Parameter>;
};

/// @brief The policy of master weights that was chosen for a model: that of its 16-bit parameters,
/// if it has some.
template <class... TypeSets>
struct ChosenMaster {
    using type = NoMasterWeights;
};

template <class First, class... Rest>
struct ChosenMaster<First, Rest...> {
    using type =
        std::conditional_t<First::master_form == MasterForm::own,
                           typename ChosenMaster<Rest...>::type, typename First::MasterWeights>;
};

} // namespace ZERO_NAMESPACE::detail
