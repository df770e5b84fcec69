#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/error.hpp"
#include "../../../core/source_location.hpp"
#include "../../cuda_error.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Throws the error for a failed call of the CUDA runtime, with a remedy where one is known.
/// @throws OutOfOrder if a stream capture forbids the call; CudaError otherwise
[[noreturn]] inline void throw_cuda_error(cudaError_t code, char const* what,
                                          SourceLocation const& where) {
    if (cudaPeekAtLastError() == code) {
        static_cast<void>(cudaGetLastError()); // the exception reports it
    }
    std::string text =
        zero::detail::text({"zero: ", what, " failed: ", cudaGetErrorName(code), ", ",
                            cudaGetErrorString(code), " (", where.file, ':', where.line, ')'});
    char const* const rule =
        code == cudaErrorStreamCaptureIsolation
            ? "; captured work cannot wait for work that was enqueued before the capture: call "
              "join() of the engine right before the capture."
        : code == cudaErrorStreamCaptureMerge
            ? "; the ranks of a loopback group must be captured together, into one graph "
              "(docs/cuda.md)."
        : code == cudaErrorCapturedEvent || code == cudaErrorStreamCaptureUnsupported
            ? "; while a graph is captured, the host can neither wait for a step nor read its "
              "results."
            : nullptr;
    if (rule != nullptr) {
        throw OutOfOrder(text + rule, where, static_cast<int>(code));
    }
    if (code == cudaErrorInvalidResourceHandle) {
        text += "; a stream or event of another device than the thread's current one? Call "
                "cudaSetDevice at the beginning of the rank's thread";
    }
    if (code == cudaErrorMemoryAllocation) {
        text += "; choose a later stage, smaller buckets or fewer leases, or give the stage "
                "another memory resource";
    }
    throw CudaError(text + '.', where, static_cast<int>(code));
}

/// @brief Throws unless a call of the CUDA runtime succeeded. The CUDA layer passes every code
/// through this function or through `ignore`.
/// @param what the name of the call, for the message
/// @throws OutOfOrder if a stream capture forbids the call; CudaError otherwise
inline void check(cudaError_t code, char const* what,
                  SourceLocation where = SourceLocation::current()) {
    if (code != cudaSuccess) {
        throw_cuda_error(code, what, where);
    }
}

/// @brief Returns a function of the driver, so that programs need not link it; null with an `error`
/// or if the driver lacks it.
/// @param version of CUDA with that function, such as 12000
inline void* driver_function(char const* name, unsigned version, cudaError_t& error) noexcept {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
#else
    static_cast<void>(version);
    error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : nullptr;
}

/// @brief Returns the current device of the calling thread. @throws CudaError
[[nodiscard]] inline int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// @brief Discards a code that says nothing new: a failed device repeats its error for ever. Errors
/// of clean-up code go to `CleanUp::check`.
inline void ignore(cudaError_t) noexcept {}

/// @brief Clears, at the end of a scope, a last error of the calling thread that arose inside it.
/// The program could mistake it for an error of its own next launch, and so could CUB, Thrust and
/// cuBLAS. An earlier error of the program stays, unless a later one has replaced it: CUDA has no
/// call that would restore it.
class KeptLastError {
public:
    KeptLastError() noexcept : _was_clean(cudaPeekAtLastError() == cudaSuccess) {}
    KeptLastError(KeptLastError&&) = delete;
    KeptLastError& operator=(KeptLastError&&) = delete;
    ~KeptLastError() {
        if (_was_clean) {
            ignore(cudaGetLastError());
        }
    }

private:
    bool _was_clean;
};

} // namespace ZERO_NAMESPACE::cuda::detail
