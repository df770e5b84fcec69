#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE {

/// @brief Model states that are offloaded cannot be read or written. The message names the chunk,
/// its place and the reason. `code` is that of the system, or 0.
class TierError : public Error {
public:
    using Error::Error;
};

} // namespace ZERO_NAMESPACE
