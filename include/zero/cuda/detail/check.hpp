#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/error.hpp"
#include "../../core/source_location.hpp"
#include "../cuda_error.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace ZERO_NAMESPACE::cuda::detail {

[[noreturn]] inline void throw_cuda_error(cudaError_t code, char const* what,
                                          SourceLocation const& where) {
    std::string text =
        zero::detail::text({"zero: ", what, " failed: ", cudaGetErrorName(code), ", ",
                            cudaGetErrorString(code), " (", where.file, ':', where.line, ')'});
    if (code == cudaErrorStreamCaptureIsolation) {
        throw OutOfOrder(text
                             + "; what is captured cannot wait for what was enqueued before the "
                               "capture: call join() of an engine right before it begins.",
                         where, static_cast<int>(code));
    }
    if (code == cudaErrorStreamCaptureMerge) {
        throw OutOfOrder(text
                             + "; ranks of one loopback group are captured together, into one "
                               "graph (docs/cuda.md).",
                         where, static_cast<int>(code));
    }
    if (code == cudaErrorCapturedEvent || code == cudaErrorStreamCaptureUnsupported) {
        throw OutOfOrder(text
                             + "; while a graph is captured nothing of a step can be waited for or "
                               "read on the host.",
                         where, static_cast<int>(code));
    }
    if (code == cudaErrorMemoryAllocation) {
        text += "; choose a later stage, smaller buckets or fewer leases, or give the stage "
                "another memory resource";
    }
    throw CudaError(text + '.', where, static_cast<int>(code));
}

/// @brief Throws unless the call succeeded. @param what the call, for the message
/// @throws CudaError; OutOfOrder when the call is not possible because a stream is being captured
inline void check(cudaError_t code, char const* what,
                  SourceLocation where = SourceLocation::current()) {
    if (code != cudaSuccess) {
        throw_cuda_error(code, what, where);
    }
}

/// @brief For clean-up, which has nobody to report to: the runtime may be shutting down, and a
/// device that failed repeats its error for ever.
inline void ignore(cudaError_t) noexcept {}

} // namespace ZERO_NAMESPACE::cuda::detail
