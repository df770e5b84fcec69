#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief One parameter on its way into a bucket.
struct BucketItem {
    std::size_t elements = 0; ///< rounded up to the granularity of the layout
    std::size_t unit = 0;     ///< the one that uses it; the first of several
};

/// @brief A policy that says how many of the next parameters, in gradient-ready order, form a
/// bucket.
///
/// `take(items, options, element_bytes)` gets at least one item and returns a number from 1 to
/// items.size(). Pure. What the layout demands beyond it (a tied parameter alone, stage 3 buckets
/// inside a unit) is done by the layout, which offers only such runs.
template <class B>
concept Bucketer =
    std::same_as<typename B::policy_category, BucketerCategory> && requires { typename B::Options; }
    && std::same_as<decltype(B::may_span_units), bool const>
    && requires(std::span<BucketItem const> items, typename B::Options const& options) {
           { B::take(items, options, std::size_t{}) } -> std::same_as<std::size_t>;
           { B::validate(options) } -> std::same_as<void>;
       };

/// @brief Reports each reason why `B` is not a `Bucketer` as one error.
template <class B>
consteval bool diagnose_bucketer() {
    static_assert(
        requires { typename B::Options; },
        "zero: a Bucketer needs a member type 'Options' (an empty struct if it has none).");
    static_assert(
        requires { requires std::same_as<decltype(B::may_span_units), bool const>; },
        "zero: a Bucketer needs 'static constexpr bool may_span_units' (false: it also serves "
        "stage 3 by cutting at units).");
    if constexpr (requires { typename B::Options; }) {
        static_assert(
            requires(std::span<BucketItem const> items, typename B::Options const& options) {
                { B::take(items, options, std::size_t{}) } -> std::same_as<std::size_t>;
            }, "zero: a Bucketer needs 'static std::size_t take(std::span<BucketItem const>, "
               "Options const&, std::size_t element_bytes)'.");
        static_assert(
            requires(typename B::Options const& options) {
                { B::validate(options) } -> std::same_as<void>;
            }, "zero: a Bucketer needs 'static void validate(Options const&)' (throws "
               "InvalidArgument).");
    }
    return Bucketer<B>;
}

} // namespace ZERO_NAMESPACE
