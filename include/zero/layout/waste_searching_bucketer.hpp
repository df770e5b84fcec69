#pragma once

#include "../core/minmax.hpp"
#include "../core/throw_error.hpp"
#include "bucketer.hpp"

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace zero {

/// @brief A bucketer that offers several groupings, of which the layout takes the one with the least padding, the first of equals.
///
/// The layout tries the options as they were given, then whatever `next(given, tried, fullest_bytes)` returns, until that is nothing.
/// `fullest_bytes`: of the fullest bucket that holds several parameters under the options tried last, 0 when none does.
template <class B>
concept SearchingBucketer =
    Bucketer<B> && requires(typename B::Options const& given, typename B::Options const& tried, std::size_t fullest_bytes) {
        { B::next(given, tried, fullest_bytes) } -> std::same_as<std::optional<typename B::Options>>;
    };

struct WasteSearchingBucketerOptions {
    std::size_t smallest_bytes = std::size_t{12} << 20U; ///< the least cap to try, in bytes of the parameter type, at least 1
    std::size_t largest_bytes = std::size_t{25} << 20U;  ///< the largest cap to try, at least `smallest_bytes`
};

/// @brief Fills buckets like `SizeCappedBucketer`, under the cap between two bounds that wastes the least padding on this model, these
/// ranks and this partitioner; the largest of equal ones.
///
/// Going down from the largest cap, the grouping stays until the cap falls below the fullest bucket, so each step goes there: every
/// grouping is tried, but of those that are less than 1/1024 of the range apart. At most 1025 layouts are made, each
/// O(parameters + buckets * W). It has nothing to choose, and takes the largest cap, for partitioners that do not pad buckets and in
/// adopted blocks.
struct WasteSearchingBucketer {
    using policy_category = BucketerCategory;
    using Options = WasteSearchingBucketerOptions;
    static constexpr bool may_span_units = false;

    static void validate(Options const& options) {
        if (options.smallest_bytes == 0) {
            detail::throw_error<InvalidArgument>({"zero: smallest_bytes is 0; give the least cap of a bucket in bytes, 12 MiB is a good start."});
        }
        if (options.smallest_bytes > options.largest_bytes) {
            detail::throw_error<InvalidArgument>({"zero: smallest_bytes is ", options.smallest_bytes, ", but largest_bytes is ",
                                                  options.largest_bytes, "; the caps are searched from the largest down to the smallest."});
        }
    }

    static std::size_t take(std::span<BucketItem const> items, Options const& options, std::size_t element_bytes) {
        return SizeCappedBucketer::take(items, {options.largest_bytes}, element_bytes);
    }

    /// @brief The cap to try after `tried`, whose fullest bucket had so many bytes; nothing when the search is at its end.
    static std::optional<Options> next(Options const& given, Options const& tried, std::size_t fullest_bytes) {
        std::size_t const step = (given.largest_bytes - given.smallest_bytes) / 1024 + 1;
        std::size_t const room = tried.largest_bytes - given.smallest_bytes;
        if (fullest_bytes <= given.smallest_bytes || room < step) {
            return std::nullopt;
        }
        return Options{given.smallest_bytes, detail::smaller(fullest_bytes - 1, tried.largest_bytes - step)};
    }
};
static_assert(SearchingBucketer<WasteSearchingBucketer>);

} // namespace zero
