#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE {

/// @brief A call of the CUDA runtime failed. `code()` is its cudaError_t; after most of them the
/// device takes no further work of this process.
class CudaError : public Error {
public:
    using Error::Error;
};

} // namespace ZERO_NAMESPACE
