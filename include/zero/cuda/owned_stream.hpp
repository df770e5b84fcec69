#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/runtime/check.hpp"
#include "detail/runtime/clean_up.hpp"

#include <cstdint>
#include <cuda_runtime_api.h>

namespace ZERO_NAMESPACE::cuda {

/// @brief Which stream's blocks a device starts first.
enum class StreamPriority : std::uint8_t { normal, highest };

/// @brief Owns a stream of the device that is current when it is constructed. The stream does not
/// synchronise with the legacy default stream.
class OwnedStream {
public:
    /// @brief Creates a stream of the current device. @throws CudaError
    explicit OwnedStream(StreamPriority priority = StreamPriority::normal) {
        _device = detail::current_device();
        int least = 0;
        int greatest = 0;
        detail::check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                      "cudaDeviceGetStreamPriorityRange");
        detail::check(
            cudaStreamCreateWithPriority(&_stream, cudaStreamNonBlocking,
                                         priority == StreamPriority::highest ? greatest : least),
            "cudaStreamCreateWithPriority");
    }
    OwnedStream(OwnedStream const&) = delete;
    OwnedStream& operator=(OwnedStream const&) = delete;
    /// @brief Does not wait: work on the stream runs to its end. Any device may be current.
    ~OwnedStream() {
        detail::CleanUp clean_up(_device);
        clean_up.check(cudaStreamDestroy(_stream), "cudaStreamDestroy");
    }

    /// @brief Returns the stream, which is valid while this object lives.
    [[nodiscard]] cudaStream_t get() const noexcept { return _stream; }

private:
    cudaStream_t _stream = nullptr;
    int _device = 0;
};

/// @brief Returns the value of a stream option that the caller must set; no stream has it.
inline cudaStream_t unset_stream() noexcept {
    return reinterpret_cast<cudaStream_t>(
        ~std::uintptr_t{0}); // the special streams of CUDA are small numbers
}

} // namespace ZERO_NAMESPACE::cuda
