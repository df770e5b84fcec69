#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../size_capped_bucketer.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void SizeCappedBucketer::validate(Options const& options) {
    if (options.bucket_bytes == 0) {
        detail::throw_error<InvalidArgument>({"zero: bucket_bytes is 0; give the capacity of "
                                              "a bucket in bytes; 25 MiB is a good start."});
    }
}

ZERO_COLD_INLINE std::size_t SizeCappedBucketer::take(std::span<BucketItem const> items,
                                                      Options const& options,
                                                      std::size_t element_bytes) {
    std::size_t const cap = options.bucket_bytes / element_bytes;
    std::size_t filled = items[0].elements;
    std::size_t taken = 1;
    while (taken < items.size() && filled <= cap && items[taken].elements <= cap - filled) {
        filled += items[taken++].elements;
    }
    return taken;
}

} // namespace ZERO_NAMESPACE
