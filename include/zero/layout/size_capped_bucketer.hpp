#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/policy_category.hpp"
#include "bucketer.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief Options of `SizeCappedBucketer`.
struct SizeCappedBucketerOptions {
    /// @brief Capacity of a bucket, in bytes of the parameter type. A larger parameter gets a
    /// bucket of its own.
    std::size_t bucket_bytes = std::size_t{25} << 20U;
};

/// @brief Fills a bucket in gradient-ready order until the next parameter would exceed the
/// capacity. The default in stages 0 to 2.
struct SizeCappedBucketer {
    using policy_category = BucketerCategory;
    using Options = SizeCappedBucketerOptions;
    static constexpr bool may_span_units = false;

    [[gnu::cold]] static void validate(Options const& options) {
        if (options.bucket_bytes == 0) {
            detail::throw_error<InvalidArgument>({"zero: bucket_bytes is 0; give the capacity of a "
                                                  "bucket in bytes; 25 MiB is a good start."});
        }
    }

    [[gnu::cold]] static std::size_t take(std::span<BucketItem const> items, Options const& options,
                                          std::size_t element_bytes) {
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

/// @brief `ParameterBucketer` has no options.
struct ParameterBucketerOptions {};

/// @brief Makes one bucket per parameter: the most collectives and the finest overlap.
struct ParameterBucketer {
    using policy_category = BucketerCategory;
    using Options = ParameterBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const&) {}
    static std::size_t take(std::span<BucketItem const>, Options const&, std::size_t) { return 1; }
};
static_assert(Bucketer<ParameterBucketer>);

/// @brief `SingleBucketer` has no options.
struct SingleBucketerOptions {};

/// @brief Puts all parameters into one bucket: one reduction after the backward pass, without
/// overlap. It does not serve stage 3.
struct SingleBucketer {
    using policy_category = BucketerCategory;
    using Options = SingleBucketerOptions;
    static constexpr bool may_span_units = true;

    static void validate(Options const&) {}
    static std::size_t take(std::span<BucketItem const> items, Options const&, std::size_t) {
        return items.size();
    }
};
static_assert(Bucketer<SingleBucketer>);

/// @brief `UnitBucketer` has no options.
struct UnitBucketerOptions {};

/// @brief Makes one bucket per unit. The default in stage 3.
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

} // namespace ZERO_NAMESPACE
