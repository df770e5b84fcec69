#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief What a `Timeline` records beside its spans.
struct TimelineOptions {
    bool buckets = false; ///< the bucket and its units that a gather, a reduction or a publication
                          ///< works on (`Timeline::bucket_of`)
};

} // namespace ZERO_NAMESPACE
