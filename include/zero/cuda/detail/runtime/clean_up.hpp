#pragma once

#include "../../../core/detail/namespace.hpp"
#include "check.hpp"
#include "stream_capture.hpp"

#include <cuda_runtime_api.h>

#include <mutex>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Keeps the first error of a clean-up for `take_clean_up_error`.
class CleanUpRecord {
public:
    static CleanUpRecord& instance() noexcept {
        static auto& record = *new CleanUpRecord; // never destroyed, because objects may outlive
                                                  // other static objects
        return record;
    }

    void note(cudaError_t code, char const* call) noexcept {
        std::lock_guard const lock(_mutex);
        if (_code == 0) {
            _code = static_cast<int>(code);
            _call = call;
        }
    }

    void take(int& code, char const*& call) noexcept {
        std::lock_guard const lock(_mutex);
        code = _code;
        call = _call;
        _code = 0;
        _call = "";
    }

private:
    std::mutex _mutex;
    int _code = 0;
    char const* _call = "";
};

/// @brief Makes a device current for a scope. Calls CUDA only if another one is.
class CurrentDevice {
public:
    CurrentDevice() noexcept = default;
    explicit CurrentDevice(int device) noexcept { use(device); }
    CurrentDevice(CurrentDevice&&) = delete;
    CurrentDevice& operator=(CurrentDevice&&) = delete;
    ~CurrentDevice() {
        if (_earlier != unchanged) {
            ignore(cudaSetDevice(_earlier));
        }
    }

    /// @brief Call it once. If CUDA fails, the current device stays.
    void use(int device) noexcept {
        int current = device;
        ignore(cudaGetDevice(&current));
        if (current != device && cudaSetDevice(device) == cudaSuccess) {
            _earlier = current;
        }
    }

private:
    static constexpr int unchanged = -1;
    int _earlier = unchanged;
};

/// @brief The scope in which a destructor releases something: on the right device, outside
/// captures, and without a trace in the thread's last error. Errors go to `take_clean_up_error`.
class CleanUp {
public:
    CleanUp() noexcept = default;
    /// @param device the device of the object that is released
    explicit CleanUp(int device) noexcept : _device(device) {}

    /// @brief Makes the device of an allocation current. Call it once.
    void use_device_of(void const* memory) noexcept {
        cudaPointerAttributes attributes{};
        if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess
            && attributes.type != cudaMemoryTypeUnregistered) {
            _device.use(attributes.device);
        }
    }

    /// @brief Notes an error, unless the runtime is shutting down and has released everything.
    void check(cudaError_t code, char const* call) noexcept {
        if (code != cudaSuccess && code != cudaErrorCudartUnloading
            && code != cudaErrorContextIsDestroyed) {
            CleanUpRecord::instance().note(code, call);
        }
    }

private:
    KeptLastError _last_error; // first, so destroyed last: it clears errors of the others
    OutsideCapture _outside;
    CurrentDevice _device;
};

} // namespace ZERO_NAMESPACE::cuda::detail
