#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/policy_category.hpp"
#include "bucketer.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

struct SizeCappedBucketerOptions {
    std::size_t bucket_bytes = std::size_t{25}
                               << 20U; ///< cap, in bytes of the parameter type; a larger parameter
                                       ///< gets a bucket of its own
};

/// @brief Fills a bucket in gradient-ready order until the next parameter would exceed the cap.
/// Inside a unit in stage 3.
struct SizeCappedBucketer {
    using policy_category = BucketerCategory;
    using Options = SizeCappedBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const& options) {
        if (options.bucket_bytes == 0) {
            detail::throw_error<InvalidArgument>({"zero: bucket_bytes is 0; give the cap of a "
                                                  "bucket in bytes, 25 MiB is a good start."});
        }
    }

    static std::size_t take(std::span<BucketItem const> items, Options const& options,
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

} // namespace ZERO_NAMESPACE
