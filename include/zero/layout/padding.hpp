#pragma once

/// @file
/// @brief Padding: unused elements that align parameters and shards in the flat buffer.
///
/// Padding has two sources. `padded_size` rounds a parameter up to `granularity`, so that the next
/// parameter of the bucket starts aligned. `even_extent` rounds the extents of an even cut up, so
/// that every rank owns the same number of elements; the end of the bucket is padded to W extents.
/// `layout/detail/partition/place_in_bucket.hpp` and `layout/detail/partition/make_buckets.hpp`
/// apply both. Buckets that are directly in an adopted block have no padding, because the caller
/// chose its offsets.

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The alignment of the flat buffer, in elements. Parameters start and shards are cut at
/// multiples of it.
///
/// 64 elements of 16 bits are 128 bytes, so vector loads and 16-byte transports stay aligned at any
/// world size.
inline constexpr std::size_t granularity = 64;

/// @brief Returns the smallest multiple of `multiple` (positive) that is at least `value`.
constexpr std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
    return (value + multiple - 1) / multiple * multiple;
}

/// @brief Returns the largest multiple of `multiple` (positive) that is at most `value`.
constexpr std::size_t round_down(std::size_t value, std::size_t multiple) noexcept {
    return value / multiple * multiple;
}

/// @brief Returns the elements that a parameter occupies in a bucket, padding included.
constexpr std::size_t padded_size(std::size_t elements) noexcept {
    return round_up(elements, granularity);
}

/// @brief Returns the length of each of W equal extents that together hold `elements`.
constexpr std::size_t even_extent(std::size_t elements, std::size_t world) noexcept {
    return round_up((elements + world - 1) / world, granularity);
}

} // namespace ZERO_NAMESPACE
