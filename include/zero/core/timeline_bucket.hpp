#pragma once

#include "detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <limits>

namespace ZERO_NAMESPACE {

/// @brief The bucket that a span of a `Timeline` works on, with `TimelineOptions::buckets`.
struct TimelineBucket {
    static constexpr std::size_t none =
        std::numeric_limits<std::size_t>::max(); ///< `number` of work on no bucket

    std::size_t number = none;    ///< index of the bucket in the layout
    std::array<char, 64> units{}; ///< the names of its first and last unit, cut to fit: "layer 1 to
                                  ///< layer 3", or one name if both are the same
};

} // namespace ZERO_NAMESPACE
