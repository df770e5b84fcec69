#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE {

/// @brief A call of the CUDA runtime failed.
///
/// `code()` is its cudaError_t. After most of these errors the device accepts no further work from
/// this process. Thrown by `detail/runtime/check.hpp`.
class CudaError : public Error {
public:
    using Error::Error;
};

} // namespace ZERO_NAMESPACE
