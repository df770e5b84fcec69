#pragma once

#include "../core/detail/namespace.hpp"
#include "error.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ZERO_NAMESPACE::cuda {

/// @brief A stream that is made for the current device and destroyed with this object. It does not
/// wait for the legacy default stream.
class OwnedStream {
public:
    /// @brief A new stream of the current device. @throws CudaError
    OwnedStream() {
        check(cudaStreamCreateWithFlags(&_stream, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
    }
    OwnedStream(OwnedStream const&) = delete;
    OwnedStream& operator=(OwnedStream const&) = delete;
    /// @brief Does not wait: what is on the stream still runs.
    ~OwnedStream() { ignore(cudaStreamDestroy(_stream)); }

    /// @brief The stream, which is valid as long as this object lives.
    [[nodiscard]] cudaStream_t get() const noexcept { return _stream; }

private:
    cudaStream_t _stream = nullptr;
};

/// @brief No stream: what an option holds in which the caller has to name one.
inline cudaStream_t unset_stream() noexcept {
    return reinterpret_cast<cudaStream_t>(
        ~std::uintptr_t{0}); // CUDA's own special streams are small numbers
}

} // namespace ZERO_NAMESPACE::cuda
