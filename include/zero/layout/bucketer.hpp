#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "piece.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A parameter as a `Bucketer` sees it.
struct BucketItem {
    std::size_t elements = 0; ///< padding included
    std::size_t unit = 0;     ///< the unit that uses it; for a tied parameter the first listed
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

// The requirements of `Bucketer`, one concept each. The concept and its messages use them.

template <class B>
concept BucketerHasCategory = std::same_as<typename B::policy_category, BucketerCategory>;

template <class B>
concept BucketerHasOptions = requires { typename B::Options; };

template <class B>
concept BucketerHasSpanFlag = std::same_as<decltype(B::may_span_units), bool const>;

template <class B>
concept BucketerHasTake =
    requires(std::span<BucketItem const> items, typename B::Options const& options) {
        { B::take(items, options, std::size_t{}) } -> std::same_as<std::size_t>;
    };

template <class B>
concept BucketerHasValidate = requires(typename B::Options const& options) {
    { B::validate(options) } -> std::same_as<void>;
};

} // namespace ZERO_NAMESPACE::detail

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
    static_assert(detail::BucketerHasSpanFlag<B>,
                  "zero: a Bucketer needs 'static constexpr bool may_span_units' (false: it also "
                  "serves stage 3 by cutting at units).");
    if constexpr (detail::BucketerHasOptions<B>) {
        static_assert(detail::BucketerHasTake<B>,
                      "zero: a Bucketer needs 'static std::size_t take(std::span<BucketItem "
                      "const>, Options const&, std::size_t element_bytes)'.");
        static_assert(detail::BucketerHasValidate<B>,
                      "zero: a Bucketer needs 'static void validate(Options const&)' (throws "
                      "InvalidArgument).");
    }
    return Bucketer<B>;
}

/// @brief One bucket of a layout: its pieces, and its cut into one extent per rank. `make_layout`
/// and `make_adopted_layout` produce it, and `FlatLayout` owns and indexes it.
struct BucketPlan {
    std::vector<Piece> pieces;     ///< disjoint, in ascending order of bucket_begin
    std::vector<std::size_t> cuts; ///< W + 1 ascending offsets; rank r owns [cuts[r], cuts[r + 1]);
                                   ///< empty: every rank owns `extent` elements
    bool trainable = true;         ///< false: never reduced and never updated
    std::size_t type = 0;          ///< index of the type of all its parameters
    bool is_staged = false;        ///< communicated through a copy, because its pieces are not
                                   ///< contiguous in the adopted block
    std::size_t block_begin = 0;   ///< first element in the adopted block, unless it is staged
    std::size_t extent = 0;        ///< elements per rank if cuts is empty
    bool is_persistent = false;    ///< stays gathered until the update (`GatherOptions`)
};

} // namespace ZERO_NAMESPACE
