#pragma once

#include "../../comm/communicator.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../layout/bucketer.hpp"
#include "../../layout/partitioner.hpp"
#include "../gradient_reduction.hpp"
#include "../loss_scaler.hpp"
#include "../master_weights_policy.hpp"
#include "../optimizer.hpp"
#include "../optimizer_state_policy.hpp"
#include "../parameters_policy.hpp"

#include <concepts>
#include <cstddef>

namespace ZERO_NAMESPACE::detail {

template <class P>
concept HasCategory = requires { typename P::policy_category; };

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

/// @brief Is `P` a complete model of the concept that its category names?
template <class P>
consteval bool is_valid_policy() {
    if constexpr (!HasCategory<P>) {
        return false;
    } else {
        return ParametersPolicy<P> || Partitioner<P> || Bucketer<P> || Communicator<P>
               || LossScaler<P> || MasterWeightsPolicy<P> || Optimizer<P> || OptimizerStatePolicy<P>
               || GradientReductionPolicy<P>;
    }
}

/// @brief Reports why `P` is rejected: first whether it is a policy at all, then what its concept
/// misses.
template <class P>
consteval bool diagnose_policy() {
    static_assert(HasCategory<P>,
                  "zero::ZeroStage: a template argument is not a policy (it has no member type "
                  "'policy_category'); "
                  "pass policies such as zero::AdamW or zero::Parameters<zero::bfloat16>.");
    if constexpr (HasCategory<P> && !is_valid_policy<P>()) {
        if constexpr (is_in<ParametersCategory, P>()) {
            return diagnose_parameters<P>();
        } else if constexpr (is_in<PartitionerCategory, P>()) {
            return diagnose_partitioner<P>();
        } else if constexpr (is_in<BucketerCategory, P>()) {
            return diagnose_bucketer<P>();
        } else if constexpr (is_in<CommunicatorCategory, P>()) {
            return diagnose_communicator<P>();
        } else if constexpr (is_in<LossScalerCategory, P>()) {
            return diagnose_loss_scaler<P>();
        } else if constexpr (is_in<MasterWeightsCategory, P>()) {
            return diagnose_master_weights<P>();
        } else if constexpr (is_in<OptimizerCategory, P>()) {
            return diagnose_optimizer<P>();
        } else if constexpr (is_in<OptimizerStateCategory, P>()) {
            return diagnose_optimizer_state<P>();
        } else if constexpr (is_in<GradientReductionCategory, P>()) {
            return diagnose_gradient_reduction<P>();
        } else {
            static_assert(
                !std::same_as<P, P>,
                "zero::ZeroStage: a policy names a category that does not exist; "
                "'policy_category' is one of the types in zero/core/policy_category.hpp.");
        }
    }
    return is_valid_policy<P>();
}

/// @brief At most one of the policies decides this.
template <class Category, class... Policies>
inline constexpr bool is_single =
    (std::size_t{0} + ... + (is_in<Category, Policies>() ? 1U : 0U)) <= 1;

/// @brief No category occurs twice.
template <class... Policies>
inline constexpr bool are_distinct =
    is_single<ParametersCategory, Policies...> && is_single<PartitionerCategory, Policies...>
    && is_single<BucketerCategory, Policies...> && is_single<CommunicatorCategory, Policies...>
    && is_single<LossScalerCategory, Policies...> && is_single<MasterWeightsCategory, Policies...>
    && is_single<OptimizerCategory, Policies...> && is_single<OptimizerStateCategory, Policies...>
    && is_single<GradientReductionCategory, Policies...>;

/// @brief Reports which category occurs twice: with two of a kind one would be dropped silently.
template <class... Policies>
consteval bool diagnose_duplicates() {
    static_assert(is_single<ParametersCategory, Policies...>,
                  "zero::ZeroStage: two Parameters policies are given; give one.");
    static_assert(is_single<PartitionerCategory, Policies...>,
                  "zero::ZeroStage: two partitioners are given; give one.");
    static_assert(is_single<BucketerCategory, Policies...>,
                  "zero::ZeroStage: two bucketers are given; give one.");
    static_assert(is_single<CommunicatorCategory, Policies...>,
                  "zero::ZeroStage: two communicators are given; give one.");
    static_assert(is_single<LossScalerCategory, Policies...>,
                  "zero::ZeroStage: two loss scalers are given; give one.");
    static_assert(is_single<MasterWeightsCategory, Policies...>,
                  "zero::ZeroStage: two MasterWeights policies are given; give one.");
    static_assert(is_single<OptimizerCategory, Policies...>,
                  "zero::ZeroStage: two optimizers are given; give one.");
    static_assert(is_single<OptimizerStateCategory, Policies...>,
                  "zero::ZeroStage: two policies for the type of the optimizer's states are given; "
                  "give one.");
    static_assert(is_single<GradientReductionCategory, Policies...>,
                  "zero::ZeroStage: two GradientReduction policies are given; give one.");
    return are_distinct<Policies...>;
}

} // namespace ZERO_NAMESPACE::detail
