#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/runtime/clean_up.hpp"
#include "detail/runtime/event_clock.hpp"
#include "detail/runtime/stream_capture.hpp"
#include "nccl_library.hpp"
#include "nccl_system.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace ZERO_NAMESPACE::cuda {

/// @brief The `NcclSystem` of real programs: the CUDA runtime, the steady clock, threads and the
/// environment of the process. Stateless; `linked_nccl()` returns it.
class LinkedSystem final : public NcclSystem {
public:
    int device_count(int& devices) noexcept override { return cudaGetDeviceCount(&devices); }
    int current_device(int& device) noexcept override { return cudaGetDevice(&device); }
    int set_device(int device) noexcept override { return cudaSetDevice(device); }
    char const* error_string(int code) noexcept override {
        return cudaGetErrorString(static_cast<cudaError_t>(code));
    }

    int create_event(EventHandle& event) noexcept override {
        cudaEvent_t made = nullptr;
        cudaError_t const code = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
        event = made;
        return code;
    }
    int record_event(EventHandle event, StreamHandle stream) noexcept override {
        return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream));
    }

    int is_event_complete(EventHandle event, bool& is_complete) noexcept override {
        detail::OutsideCapture const outside; // otherwise the query would invalidate a capture
        return detail::query_event(static_cast<cudaEvent_t>(event), is_complete);
    }
    void destroy_event(EventHandle event) noexcept override {
        detail::CleanUp().check(cudaEventDestroy(static_cast<cudaEvent_t>(event)),
                                "cudaEventDestroy");
    }

    int is_capturing(StreamHandle stream, bool& is_capturing) noexcept override {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaError_t const code = detail::query_capture(static_cast<cudaStream_t>(stream), status);
        is_capturing = status != cudaStreamCaptureStatusNone;
        return code;
    }

    Duration now() noexcept override {
        return std::chrono::duration_cast<Duration>(
            std::chrono::steady_clock::now().time_since_epoch());
    }

    /// Most waits are for NCCL's own launch and take microseconds; some are for ranks that start
    /// minutes later.
    void pause(unsigned turn) noexcept override {
        if (turn < 200) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(turn < 2000 ? 50 : 1000));
        }
    }

    bool run_bounded(int device, NcclWork work, NcclLibrary& nccl, NcclHandle handle,
                     Duration limit) noexcept override {
        struct Run {
            std::mutex mutex;
            std::condition_variable changed;
            bool has_ended = false;
        };
        std::shared_ptr<Run> run; // shared, because either thread may finish last
        try {
            run = std::make_shared<Run>();
            std::thread([run, device, work, &nccl, handle] {
                static_cast<void>(cudaSetDevice(device));
                work(nccl, handle);
                {
                    std::lock_guard const lock(run->mutex);
                    run->has_ended = true;
                }
                run->changed.notify_all();
            }).detach();
        } catch (std::exception const&) { // no thread or no memory is available
            work(nccl, handle);
            return true;
        }
        std::unique_lock lock(run->mutex);
        return run->changed.wait_for(lock, limit, [&run] { return run->has_ended; });
    }

    char const* variable(char const* name) noexcept override { return std::getenv(name); }
    void set_variable(char const* name, char const* value) noexcept override {
        if (value == nullptr) {
            ::unsetenv(name);
        } else {
            ::setenv(name, value, 1);
        }
    }
};

} // namespace ZERO_NAMESPACE::cuda
