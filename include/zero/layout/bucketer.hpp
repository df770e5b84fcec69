#pragma once

#include "../core/detail/namespace.hpp"
#include "bucket_item.hpp"
#include "detail/bucketer_requirements.hpp"

namespace ZERO_NAMESPACE {

/// @brief A policy that chooses which parameters share a bucket.
///
/// `take(items, options, element_bytes)` gets the next parameters in gradient-ready order, at least
/// one, and returns how many of them form the next bucket: from 1 to items.size(). It must be a
/// pure function, so that every rank gets the same buckets. The layout offers only parameters that
/// may share a bucket: a tied parameter comes alone, and in stage 3 all items belong to one unit.
template <class B>
concept Bucketer = detail::BucketerHasCategory<B> && detail::BucketerHasOptions<B>
                   && detail::BucketerHasSpanFlag<B> && detail::BucketerHasTake<B>
                   && detail::BucketerHasValidate<B>;

/// @brief Reports each requirement of `Bucketer` that `B` lacks as one error.
template <class B>
consteval bool diagnose_bucketer() {
    static_assert(
        detail::BucketerHasOptions<B>,
        "zero: a Bucketer needs a member type 'Options' (an empty struct if it has none).");
    static_assert(
        detail::BucketerHasSpanFlag<B>,
        "zero: a Bucketer needs 'static constexpr bool may_span_units' (false: it also serves "
        "stage 3 by cutting at units).");
    if constexpr (detail::BucketerHasOptions<B>) {
        static_assert(
            detail::BucketerHasTake<B>,
            "zero: a Bucketer needs 'static std::size_t take(std::span<BucketItem const>, "
            "Options const&, std::size_t element_bytes)'.");
        static_assert(detail::BucketerHasValidate<B>,
                      "zero: a Bucketer needs 'static void validate(Options const&)' (throws "
                      "InvalidArgument).");
    }
    return Bucketer<B>;
}

} // namespace ZERO_NAMESPACE
