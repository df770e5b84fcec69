#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief The form in which the weights that the optimizer updates are stored.
enum class MasterForm : std::uint8_t {
    own,       ///< the parameter is its own master
    copied,    ///< a master weight of another type, in addition to the parameter
    split,     ///< in addition to the bfloat16 parameter, the bits that complete it to a float
    stochastic ///< the parameter is its own master and is rounded stochastically
};

} // namespace ZERO_NAMESPACE

/// @file
/// @brief The requirements of `MasterWeightsPolicy`, one concept each. The concept and its messages
/// use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept MasterWeightsHaveOptions = requires { typename P::Options; };

template <class P>
concept MasterWeightsHaveType = requires { typename P::Type; };

template <class P>
concept MasterWeightsHaveForm = std::same_as<decltype(P::form), MasterForm const>;

/// A copy has a type; the other forms have none.
template <class P>
concept MasterTypeFitsForm = (P::form == MasterForm::copied && StorageType<typename P::Type>)
                             || (P::form != MasterForm::copied && std::is_void_v<typename P::Type>);

} // namespace ZERO_NAMESPACE::detail

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
