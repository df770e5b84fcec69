#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/check.hpp"

#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda {

/// @brief A stream that is made for the current device and destroyed with this object. It does not
/// wait for the legacy default stream.
class OwnedStream {
public:
    /// @brief A new stream of the current device. @throws CudaError
    OwnedStream() {
        detail::check(cudaStreamCreateWithFlags(&_stream, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
    }
    OwnedStream(OwnedStream const&) = delete;
    OwnedStream& operator=(OwnedStream const&) = delete;
    /// @brief Does not wait: what is on the stream still runs.
    ~OwnedStream() { detail::ignore(cudaStreamDestroy(_stream)); }

    /// @brief The stream, which is valid as long as this object lives.
    [[nodiscard]] cudaStream_t get() const noexcept { return _stream; }

private:
    cudaStream_t _stream = nullptr;
};

} // namespace ZERO_NAMESPACE::cuda
