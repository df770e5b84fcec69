#pragma once

// The chunks in which a bucket larger than the wire buffer is sent, one collective each.

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "cuts.hpp"
#include "padding.hpp"
#include "piece.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Capacity of the wire buffer in `count_layout` unless it is given: 25 MiB of float.
inline constexpr std::size_t default_wire_elements = (std::size_t{25} << 20U) / sizeof(float);

/// @brief Returns the most elements of each rank's extent that one collective sends. If the bucket
/// fits into `capacity` elements, these are all; otherwise an equal part of `capacity`, rounded
/// down to a multiple of `granularity`, but at least `granularity`.
///
/// A chunk takes the same part of every extent, so a native reduce-scatter stays native.
constexpr std::size_t wire_stride(Cuts cuts, std::size_t capacity) noexcept {
    if (cuts.back() <= capacity) {
        return cuts.back();
    }
    std::size_t const fits = capacity / (cuts.size() - 1) / granularity * granularity;
    return detail::larger(fits, std::size_t{granularity});
}

/// @brief Returns the part [begin, end) of the extent [first, last) that chunk `chunk` sends,
/// counted from `first`.
constexpr Range wire_part(std::size_t first, std::size_t last, std::size_t stride,
                          std::size_t chunk) noexcept {
    std::size_t const elements = last - first;
    std::size_t const begin = detail::smaller(stride * chunk, elements);
    return {begin, begin + detail::smaller(stride, elements - begin)};
}

/// @brief Returns the number of elements in the largest chunk of a bucket. O(W), or O(1) if the
/// cuts are even.
constexpr std::size_t wire_elements(Cuts cuts, std::size_t capacity) noexcept {
    std::size_t const stride = wire_stride(cuts, capacity);
    if (cuts.is_even()) {
        return (cuts.size() - 1) * wire_part(0, cuts[1], stride, 0).size();
    }
    std::size_t elements = 0;
    for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) { // the first chunk is the largest
        elements += wire_part(cuts[rank], cuts[rank + 1], stride, 0).size();
    }
    return elements;
}

/// @brief Returns the number of chunks of a bucket: 0 if it is empty. O(W), or O(1) if the
/// cuts are even.
constexpr std::size_t wire_chunks(Cuts cuts, std::size_t capacity) noexcept {
    std::size_t longest = cuts.is_even() ? cuts[1] : 0;
    for (std::size_t rank = 0; !cuts.is_even() && rank + 1 < cuts.size(); ++rank) {
        longest = detail::larger(longest, cuts[rank + 1] - cuts[rank]);
    }
    std::size_t const stride = wire_stride(cuts, capacity);
    return stride == 0 ? 0 : (longest + stride - 1) / stride;
}

/// @brief Returns the most elements of each rank's extent that one exchange sends. A rank receives
/// one piece from each, so with W pieces as large as the largest extent within `capacity` elements,
/// these are all; otherwise as `wire_stride`. O(W), or O(1) if the cuts are even.
constexpr std::size_t exchange_stride(Cuts cuts, std::size_t capacity) noexcept {
    std::size_t const ranks = cuts.size() - 1;
    std::size_t longest = cuts.is_even() ? cuts[1] : 0;
    for (std::size_t rank = 0; !cuts.is_even() && rank < ranks; ++rank) {
        longest = detail::larger(longest, cuts[rank + 1] - cuts[rank]);
    }
    std::size_t const fits = capacity / ranks / granularity * granularity;
    return detail::smaller(longest, detail::larger(fits, std::size_t{granularity}));
}

/// @brief Returns the number of exchanges that send a bucket: 0 if it is empty.
constexpr std::size_t exchange_chunks(Cuts cuts, std::size_t capacity) noexcept {
    std::size_t const stride = exchange_stride(cuts, capacity);
    std::size_t chunks = 0;
    for (std::size_t rank = 0; stride != 0 && rank + 1 < cuts.size(); ++rank) {
        chunks = detail::larger(chunks, (cuts[rank + 1] - cuts[rank] + stride - 1) / stride);
    }
    return chunks;
}

/// @brief A range of a bucket that ranks add in codes. Each of them adds one part.
struct CodedParts {
    Range range{}; ///< in the bucket
    Cuts cuts{};   ///< of the parts, counted from its begin; those of even parts may lie behind it

    /// @brief Returns what a chunk sends of a rank's part, in the bucket.
    [[nodiscard]] constexpr Range chunk(std::size_t rank, std::size_t stride,
                                        std::size_t number) const noexcept {
        std::size_t const first = detail::smaller(cuts[rank], range.size());
        std::size_t const last = detail::smaller(cuts[rank + 1], range.size());
        Range const part = wire_part(first, last, stride, number);
        return {range.begin + first + part.begin, range.begin + first + part.end};
    }
};

/// @brief Returns the capacity of the buffer for codes in elements.
/// @param bytes `GradientReductionOptions::wire_bytes`
/// @param block_bytes `Codec::bytes_per_block`
constexpr std::size_t coded_capacity(std::size_t bytes, std::size_t block_bytes) noexcept {
    return bytes / block_bytes * granularity;
}

} // namespace ZERO_NAMESPACE
