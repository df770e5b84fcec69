#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The purpose of a collective, for messages. Transports that check their calls also compare
/// it between ranks.
struct CollectiveTag {
    char const* what = ""; ///< static text: "bucket", "unit", ...
    std::size_t index = 0; ///< number of the bucket, unit, ...
};

} // namespace ZERO_NAMESPACE
