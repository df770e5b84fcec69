#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "detail/master_weights_requirements.hpp"
#include "master_form.hpp"

#include <concepts>

namespace ZERO_NAMESPACE {

/// @brief A policy that selects where the weights that the optimizer updates are stored. It names
/// the type of a copy, or void for none.
template <class P>
concept MasterWeightsPolicy =
    std::same_as<typename P::policy_category, MasterWeightsCategory>
    && detail::MasterWeightsHaveOptions<P> && detail::MasterWeightsHaveType<P>
    && detail::MasterWeightsHaveForm<P> && detail::MasterTypeFitsForm<P>;

/// @brief Reports each reason why `P` is not a `MasterWeightsPolicy` as one error.
template <class P>
consteval bool diagnose_master_weights() {
    static_assert(detail::MasterWeightsHaveOptions<P>,
                  "zero: a MasterWeights policy needs a member type "
                  "'Options' (an empty struct if it has none).");
    static_assert(detail::MasterWeightsHaveType<P>,
                  "zero: a MasterWeights policy needs a member type 'Type' (void for none).");
    static_assert(detail::MasterWeightsHaveForm<P>,
                  "zero: a MasterWeights policy needs 'static constexpr MasterForm form' (how the "
                  "weights are kept).");
    if constexpr (detail::MasterWeightsHaveType<P> && detail::MasterWeightsHaveForm<P>) {
        static_assert(detail::MasterTypeFitsForm<P>,
                      "zero: master weights are float or float16; write zero::MasterWeights<float> "
                      "or zero::NoMasterWeights.");
    }
    return MasterWeightsPolicy<P>;
}

} // namespace ZERO_NAMESPACE
