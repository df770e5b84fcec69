#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief How the weights that the optimizer updates are kept.
enum class MasterForm : std::uint8_t {
    own,       ///< the parameter is its own master
    copied,    ///< a master weight of another type beside the parameter
    split,     ///< what is missing to a float master beside the bfloat16 parameter
    stochastic ///< the parameter is its own master and is rounded stochastically
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief A copy names its type, and only a copy.
template <class P>
concept MasterTypeFitsForm = (P::form == MasterForm::copied && StorageType<typename P::Type>)
                             || (P::form != MasterForm::copied && std::is_void_v<typename P::Type>);

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that says how the weights are kept that the optimizer updates, and names the
/// type of a copy, or void for none.
template <class P>
concept MasterWeightsPolicy =
    std::same_as<typename P::policy_category, MasterWeightsCategory> && requires {
        typename P::Options;
    } && std::same_as<decltype(P::form), MasterForm const> && detail::MasterTypeFitsForm<P>;

/// @brief Reports each reason why `P` is not a `MasterWeightsPolicy` as one error.
template <class P>
consteval bool diagnose_master_weights() {
    static_assert(
        requires { typename P::Options; }, "zero: a MasterWeights policy needs a member type "
                                           "'Options' (an empty struct if it has none).");
    static_assert(
        requires { typename P::Type; },
        "zero: a MasterWeights policy needs a member type 'Type' (void for none).");
    static_assert(
        requires { requires std::same_as<decltype(P::form), MasterForm const>; },
        "zero: a MasterWeights policy needs 'static constexpr MasterForm form' (how the weights "
        "are kept).");
    if constexpr (requires {
                      typename P::Type;
                      requires std::same_as<decltype(P::form), MasterForm const>;
                  }) {
        static_assert(detail::MasterTypeFitsForm<P>,
                      "zero: master weights are float or float16; write zero::MasterWeights<float> "
                      "or zero::NoMasterWeights.");
    }
    return MasterWeightsPolicy<P>;
}

} // namespace ZERO_NAMESPACE
