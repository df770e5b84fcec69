#pragma once

#include "../../comm/communicator.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../layout/bucketer.hpp"
#include "../../layout/partitioner.hpp"
#include "../gradient_reduction.hpp"
#include "../loss_scaler.hpp"
#include "../master_weights_policy.hpp"
#include "../offload.hpp"
#include "../optimizer.hpp"
#include "../optimizer_state_policy.hpp"
#include "../parameters.hpp"
#include "../wire_policy.hpp"
#include "policy_list.hpp"

#include <concepts>
#include <cstddef>

/// @file
/// @brief Reports why the policies of a stage are refused, one by one and as a list. `ZeroStage`
/// uses it; `diagnose_stage.hpp` refuses compositions of valid policies. A new category adds a line
/// to `CompletePolicy`, to `diagnose_policy` and to `diagnose_single`.

namespace ZERO_NAMESPACE::detail {

/// @brief A complete model of the concept of its category.
template <class P>
concept CompletePolicy =
    (NamesCategory<P, ParametersCategory> && ParametersPolicy<P>)
    || (NamesCategory<P, PartitionerCategory> && Partitioner<P>)
    || (NamesCategory<P, BucketerCategory> && Bucketer<P>)
    || (NamesCategory<P, CommunicatorCategory> && Communicator<P>)
    || (NamesCategory<P, LossScalerCategory> && LossScaler<P>)
    || (NamesCategory<P, MasterWeightsCategory> && MasterWeightsPolicy<P>)
    || (NamesCategory<P, OptimizerCategory> && Optimizer<P>)
    || (NamesCategory<P, OptimizerStateCategory> && OptimizerStatePolicy<P>)
    || (NamesCategory<P, GradientReductionCategory> && GradientReductionPolicy<P>)
    || (NamesCategory<P, OffloadCategory> && OffloadPolicy<P>)
    || (NamesCategory<P, WireCategory> && WirePolicy<P>);

/// @brief Reports why `P` is rejected: it is not a policy, or it does not satisfy its concept.
template <class P>
consteval bool diagnose_policy() {
    static_assert(HasCategory<P>,
                  "zero::ZeroStage: a template argument is not a policy (it has no member type "
                  "'policy_category'); "
                  "pass policies such as zero::AdamW or zero::Parameters<zero::bfloat16>.");
    if constexpr (!HasCategory<P> || CompletePolicy<P>) {
        return HasCategory<P>;
    } else if constexpr (NamesCategory<P, ParametersCategory>) {
        return diagnose_parameters<P>();
    } else if constexpr (NamesCategory<P, PartitionerCategory>) {
        return diagnose_partitioner<P>();
    } else if constexpr (NamesCategory<P, BucketerCategory>) {
        return diagnose_bucketer<P>();
    } else if constexpr (NamesCategory<P, CommunicatorCategory>) {
        return diagnose_communicator<P>();
    } else if constexpr (NamesCategory<P, LossScalerCategory>) {
        return diagnose_loss_scaler<P>();
    } else if constexpr (NamesCategory<P, MasterWeightsCategory>) {
        return diagnose_master_weights<P>();
    } else if constexpr (NamesCategory<P, OptimizerCategory>) {
        return diagnose_optimizer<P>();
    } else if constexpr (NamesCategory<P, OptimizerStateCategory>) {
        return diagnose_optimizer_state<P>();
    } else if constexpr (NamesCategory<P, GradientReductionCategory>) {
        return diagnose_gradient_reduction<P>();
    } else if constexpr (NamesCategory<P, OffloadCategory>) {
        return diagnose_offload<P>();
    } else if constexpr (NamesCategory<P, WireCategory>) {
        return diagnose_wire<P>();
    } else {
        static_assert(!std::same_as<P, P>,
                      "zero::ZeroStage: a policy names a category that does not exist; "
                      "'policy_category' is one of the types in zero/core/policy_category.hpp.");
        return false;
    }
}

/// @brief True if at most one of the policies belongs to the category.
template <class Category, class... Policies>
inline constexpr bool is_single =
    (std::size_t{0} + ... + (NamesCategory<Policies, Category> ? 1U : 0U)) <= 1;

/// @brief True if no other policy belongs to the category of `P`.
template <class P, class... Policies>
concept IsOnlyOne = !HasCategory<P> || is_single<typename P::policy_category, Policies...>;

/// @brief True if no category occurs twice.
template <class... Policies>
inline constexpr bool are_distinct = (IsOnlyOne<Policies, Policies...> && ...);

/// @brief Reports a second policy of a category unless `single`.
template <class Category, bool single>
consteval bool diagnose_single() {
    static_assert(single || !std::same_as<Category, ParametersCategory>,
                  "zero::ZeroStage: two Parameters policies are given; give one.");
    static_assert(single || !std::same_as<Category, PartitionerCategory>,
                  "zero::ZeroStage: two partitioners are given; give one.");
    static_assert(single || !std::same_as<Category, BucketerCategory>,
                  "zero::ZeroStage: two bucketers are given; give one.");
    static_assert(single || !std::same_as<Category, CommunicatorCategory>,
                  "zero::ZeroStage: two communicators are given; give one.");
    static_assert(single || !std::same_as<Category, LossScalerCategory>,
                  "zero::ZeroStage: two loss scalers are given; give one.");
    static_assert(single || !std::same_as<Category, MasterWeightsCategory>,
                  "zero::ZeroStage: two MasterWeights policies are given; give one.");
    static_assert(single || !std::same_as<Category, OptimizerCategory>,
                  "zero::ZeroStage: two optimizers are given; give one.");
    static_assert(single || !std::same_as<Category, OptimizerStateCategory>,
                  "zero::ZeroStage: two policies for the type of the optimizer's states are given; "
                  "give one.");
    static_assert(single || !std::same_as<Category, GradientReductionCategory>,
                  "zero::ZeroStage: two GradientReduction policies are given; give one.");
    static_assert(single || !std::same_as<Category, OffloadCategory>,
                  "zero::ZeroStage: two Offload policies are given; give one, with every kind in "
                  "one zero::To.");
    static_assert(single || !std::same_as<Category, WireCategory>,
                  "zero::ZeroStage: two Wire policies are given; give one. zero::FrozenWeights is "
                  "one: with others, write its codec as the fourth argument of zero::Wire.");
    return single;
}

/// @brief Reports which category occurs twice among valid policies. Without the error, one of the
/// two would be dropped silently.
template <class... Policies>
consteval bool diagnose_duplicates() {
    return (diagnose_single<typename Policies::policy_category, IsOnlyOne<Policies, Policies...>>()
            && ...);
}

} // namespace ZERO_NAMESPACE::detail
