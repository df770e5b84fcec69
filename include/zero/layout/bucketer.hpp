#pragma once

#include "../core/policy_category.hpp"
#include "../core/throw_error.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace zero {

/// @brief One parameter on its way into a bucket.
struct BucketItem {
    std::size_t elements = 0; ///< rounded up to the granularity of the layout
    std::size_t unit = 0;     ///< the one that uses it; the first of several
};

/// @brief A policy that says how many of the next parameters, in gradient-ready order, form a bucket.
///
/// `take(items, options, element_bytes)` gets at least one item and returns a number from 1 to items.size(). Pure. What the layout
/// demands beyond it (a tied parameter alone, stage 3 buckets inside a unit) is done by the layout, which offers only such runs.
template <class B>
concept Bucketer = std::same_as<typename B::policy_category, BucketerCategory> && requires { typename B::Options; }
                && std::same_as<decltype(B::may_span_units), bool const>
                && requires(std::span<BucketItem const> items, typename B::Options const& options) {
                       { B::take(items, options, std::size_t{}) } -> std::same_as<std::size_t>;
                       { B::validate(options) } -> std::same_as<void>;
                   };

/// @brief Reports each reason why `B` is not a `Bucketer` as one error.
template <class B>
consteval bool diagnose_bucketer() {
    static_assert(requires { typename B::Options; }, "zero: a Bucketer needs a member type 'Options' (an empty struct if it has none).");
    static_assert(requires { requires std::same_as<decltype(B::may_span_units), bool const>; },
                  "zero: a Bucketer needs 'static constexpr bool may_span_units' (false: it also serves stage 3 by cutting at units).");
    if constexpr (requires { typename B::Options; }) {
        static_assert(requires(std::span<BucketItem const> items, typename B::Options const& options) {
                          { B::take(items, options, std::size_t{}) } -> std::same_as<std::size_t>;
                      },
                      "zero: a Bucketer needs 'static std::size_t take(std::span<BucketItem const>, Options const&, std::size_t element_bytes)'.");
        static_assert(requires(typename B::Options const& options) {
                          { B::validate(options) } -> std::same_as<void>;
                      },
                      "zero: a Bucketer needs 'static void validate(Options const&)' (throws InvalidArgument).");
    }
    return Bucketer<B>;
}

struct SizeCappedBucketerOptions {
    std::size_t bucket_bytes = std::size_t{25} << 20U; ///< cap, in bytes of the parameter type; a larger parameter gets a bucket of its own
};

/// @brief Fills a bucket in gradient-ready order until the next parameter would exceed the cap. Inside a unit in stage 3.
struct SizeCappedBucketer {
    using policy_category = BucketerCategory;
    using Options = SizeCappedBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const& options) {
        if (options.bucket_bytes == 0) {
            detail::throw_error<InvalidArgument>({"zero: bucket_bytes is 0; give the cap of a bucket in bytes, 25 MiB is a good start."});
        }
    }

    static std::size_t take(std::span<BucketItem const> items, Options const& options, std::size_t element_bytes) {
        std::size_t const cap = options.bucket_bytes / element_bytes;
        std::size_t filled = items[0].elements;
        std::size_t taken = 1;
        while (taken < items.size() && filled <= cap && items[taken].elements <= cap - filled) {
            filled += items[taken++].elements;
        }
        return taken;
    }
};
static_assert(Bucketer<SizeCappedBucketer>);

struct UnitBucketerOptions {};

/// @brief One bucket per unit.
struct UnitBucketer {
    using policy_category = BucketerCategory;
    using Options = UnitBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const&) {}

    static std::size_t take(std::span<BucketItem const> items, Options const&, std::size_t) {
        std::size_t taken = 1;
        while (taken < items.size() && items[taken].unit == items[0].unit) {
            ++taken;
        }
        return taken;
    }
};
static_assert(Bucketer<UnitBucketer>);

struct ParameterBucketerOptions {};

/// @brief One bucket per parameter: the most collectives, and the finest overlap.
struct ParameterBucketer {
    using policy_category = BucketerCategory;
    using Options = ParameterBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const&) {}
    static std::size_t take(std::span<BucketItem const>, Options const&, std::size_t) { return 1; }
};
static_assert(Bucketer<ParameterBucketer>);

struct SingleBucketerOptions {};

/// @brief Everything in one bucket: one reduction after the backward pass, no overlap. Not for stage 3.
struct SingleBucketer {
    using policy_category = BucketerCategory;
    using Options = SingleBucketerOptions;
    static constexpr bool may_span_units = true;

    static void validate(Options const&) {}
    static std::size_t take(std::span<BucketItem const> items, Options const&, std::size_t) { return items.size(); }
};
static_assert(Bucketer<SingleBucketer>);

} // namespace zero
