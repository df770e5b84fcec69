#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE {

/// @brief A checkpoint cannot be written or read. The message names the file and the array.
class CheckpointError : public Error {
public:
    using Error::Error;
};

} // namespace ZERO_NAMESPACE
