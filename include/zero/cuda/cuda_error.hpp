#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../core/source_location.hpp"

#include <string>

// Errors of the CUDA layer repeat the constructor: nvcc 13.0 fails with an internal error where a
// constructor is inherited whose default argument is the source location of the caller.

namespace ZERO_NAMESPACE {

/// @brief A call of the CUDA runtime failed.
///
/// `code()` is its cudaError_t. After most of these errors the device accepts no further work from
/// this process. Thrown by `detail/runtime/check.hpp`.
class CudaError : public Error {
public:
    explicit CudaError(std::string const& message, SourceLocation where = SourceLocation::current(),
                       int code = 0)
        : Error(message, where, code) {}
};

} // namespace ZERO_NAMESPACE
