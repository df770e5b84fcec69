#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief Options of a `Timeline`: the data that it records beside its spans.
struct TimelineOptions {
    bool buckets = false; ///< the bucket, with its units, on which a gather, a reduction or a
                          ///< publish works (`Timeline::bucket_of`)
};

} // namespace ZERO_NAMESPACE
