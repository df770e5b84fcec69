#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "bucket_item.hpp"
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

    static void validate(Options const& options);
    static std::size_t take(std::span<BucketItem const> items, Options const& options,
                            std::size_t element_bytes);
};
static_assert(Bucketer<SizeCappedBucketer>);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/size_capped_bucketer.ipp"
#endif
