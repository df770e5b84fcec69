#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../ops/codec.hpp"

#include <concepts>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief For `Wire`: values travel, and frozen parameters lie, in their own type.
struct Plain {};

/// @brief For `Wire` on `Groups<C, Hybrid>`: how gradients travel on each level.
/// @tparam Inside `Plain` or a `Codec`, for reductions inside a group
/// @tparam Between the same, for the sums that replicas add once a step
template <class Inside, class Between>
struct Level {};

/// @brief For `Wire`: the error of an encoding is not kept.
struct NoFeedback {
    struct Options {}; ///< there are none
};

/// @brief The policy of a stage that names none: all values travel as they are.
struct PlainWire {
    using policy_category = WireCategory;
    using WeightCodec = Plain;        ///< of gathered weights
    using GradientCodec = Plain;      ///< of reduced gradients; or a `Level` of two
    using ErrorFeedback = NoFeedback; ///< of gradients
    using FrozenCodec = Plain;        ///< of frozen parameters
};

} // namespace ZERO_NAMESPACE

/// The requirements of `WirePolicy`, one concept each. The concept and its messages use them.
namespace ZERO_NAMESPACE::detail {

/// @brief The levels of a `GradientCodec`: a codec alone serves both.
template <class G>
struct LevelsOf {
    static constexpr bool are_given = false;
    using Inside = G;
    using Between = G;
};
template <class I, class B>
struct LevelsOf<Level<I, B>> {
    static constexpr bool are_given = true;
    using Inside = I;
    using Between = B;
};

template <class P>
concept WireHasTypes = requires {
    typename P::WeightCodec;
    typename P::GradientCodec;
    typename P::ErrorFeedback;
    typename P::FrozenCodec;
};

/// Whether values are left as they are, or encoded.
template <class C>
concept PlainOrCodec = std::same_as<C, Plain> || Codec<C>;

template <class P>
concept WireWeightsFit = PlainOrCodec<typename P::WeightCodec>;

template <class P>
concept WireGradientsFit = PlainOrCodec<typename LevelsOf<typename P::GradientCodec>::Inside>
                           && PlainOrCodec<typename LevelsOf<typename P::GradientCodec>::Between>;

template <class P>
concept WireFrozenFits = PlainOrCodec<typename P::FrozenCodec>;

/// Whether two levels have a codec.
template <class P>
concept WireLevelsAreUsed = !std::same_as<typename P::GradientCodec, Level<Plain, Plain>>;

/// Whether errors are kept as floats or in codes, or not at all.
template <class P>
concept WireFeedbackFits = std::same_as<typename P::ErrorFeedback, NoFeedback> || requires {
    typename P::ErrorFeedback::Options;
    requires std::same_as<typename P::ErrorFeedback::Storage, float>
                 || Codec<typename P::ErrorFeedback::Storage>;
};

/// Whether there are errors to keep: those of the gradients that a rank encodes for its group.
template <class P>
concept WireFeedbackIsUsed =
    std::same_as<typename P::ErrorFeedback, NoFeedback>
    || !std::same_as<typename LevelsOf<typename P::GradientCodec>::Inside, Plain>;

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that selects how values travel between ranks.
template <class P>
concept WirePolicy =
    std::same_as<typename P::policy_category, WireCategory> && detail::WireHasTypes<P>
    && detail::WireWeightsFit<P> && detail::WireGradientsFit<P> && detail::WireLevelsAreUsed<P>
    && detail::WireFeedbackFits<P> && detail::WireFeedbackIsUsed<P> && detail::WireFrozenFits<P>;

/// @brief Reports each reason why `P` is not a `WirePolicy` as one error.
template <class P>
consteval bool diagnose_wire() {
    static_assert(detail::WireHasTypes<P>,
                  "zero: a Wire policy needs member types 'WeightCodec', 'GradientCodec', "
                  "'ErrorFeedback' and 'FrozenCodec'; write zero::Wire<zero::Int8Blocks>.");
    if constexpr (detail::WireHasTypes<P>) {
        if constexpr (!detail::WireWeightsFit<P>) {
            return diagnose_codec<typename P::WeightCodec>();
        } else if constexpr (!detail::WireFrozenFits<P>) {
            return diagnose_codec<typename P::FrozenCodec>();
        } else {
            using Levels = detail::LevelsOf<typename P::GradientCodec>;
            if constexpr (!detail::PlainOrCodec<typename Levels::Inside>) {
                return diagnose_codec<typename Levels::Inside>();
            } else if constexpr (!detail::PlainOrCodec<typename Levels::Between>) {
                return diagnose_codec<typename Levels::Between>();
            }
            static_assert(detail::WireLevelsAreUsed<P>,
                          "zero: zero::Level<zero::Plain, zero::Plain> encodes nothing; leave the "
                          "second argument of zero::Wire out.");
            static_assert(
                !detail::WireGradientsFit<P> || detail::WireFeedbackIsUsed<P>,
                "zero: Wire keeps the errors of the gradients that a rank encodes for its "
                "group, and it encodes none; leave the third argument of zero::Wire "
                "out.");
            static_assert(!detail::WireGradientsFit<P> || !detail::WireFeedbackIsUsed<P>
                              || detail::WireFeedbackFits<P>,
                          "zero: the third argument of zero::Wire is zero::ErrorFeedback<float>, "
                          "zero::ErrorFeedback of a codec, or zero::NoFeedback.");
        }
    }
    return WirePolicy<P>;
}

} // namespace ZERO_NAMESPACE
