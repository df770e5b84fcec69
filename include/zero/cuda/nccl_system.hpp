#pragma once

#include "../core/detail/namespace.hpp"
#include "nccl_library.hpp"

#include <chrono>

namespace ZERO_NAMESPACE::cuda {

using NcclWork =
    void (*)(NcclLibrary& nccl,
             NcclHandle handle); ///< the work of `NcclSystem::run_bounded`; must not throw

/// @brief Everything the communicator needs besides NCCL: devices, events, time, threads and
/// environment variables. Replaceable like `NcclLibrary`; `LinkedSystem` is the implementation for
/// programs.
///
/// Functions that return int return codes of the CUDA runtime, 0 for success.
class NcclSystem {
public:
    using Duration = std::chrono::milliseconds; ///< for time-outs and for the clock
    using EventHandle = void*;                  ///< a cudaEvent_t

    NcclSystem() = default;
    NcclSystem(NcclSystem const&) = delete;
    NcclSystem& operator=(NcclSystem const&) = delete;
    virtual ~NcclSystem() = default;

    /// @brief Gets the number of devices that this process sees.
    virtual int device_count(int& devices) noexcept = 0;
    /// @brief Gets the device of the calling thread, from 0.
    virtual int current_device(int& device) noexcept = 0;
    /// @brief Sets the device of the calling thread.
    virtual int set_device(int device) noexcept = 0;
    /// @brief Returns the CUDA runtime's text for a code; static.
    virtual char const* error_string(int code) noexcept = 0;

    /// @brief Creates an event of the current device, without timing.
    virtual int create_event(EventHandle& event) noexcept = 0;
    /// @brief Records the event after all work on `stream` so far.
    virtual int record_event(EventHandle event, StreamHandle stream) noexcept = 0;
    /// @brief Queries an event without waiting. Thread-safe, even while another thread captures a
    /// graph.
    virtual int is_event_complete(EventHandle event, bool& is_complete) noexcept = 0;
    /// @brief Destroys an event. Errors are ignored: the runtime may be shutting down.
    virtual void destroy_event(EventHandle event) noexcept = 0;
    /// @brief Queries whether the stream is being captured into a graph; events recorded on it then
    /// cannot be queried.
    virtual int is_capturing(StreamHandle stream, bool& is_capturing) noexcept = 0;

    /// @brief Returns the time since a fixed point; never decreases.
    virtual Duration now() noexcept = 0;
    /// @brief Yields to other threads before the next query; `turn` counts the pauses of one wait.
    virtual void pause(unsigned turn) noexcept = 0;
    /// @brief Runs `work(nccl, handle)` on a new thread whose device is `device`, and waits for it
    /// at most `limit`; longer work continues on its own. If no thread can be created, runs it on
    /// the calling one.
    /// @return whether the work has ended
    virtual bool run_bounded(int device, NcclWork work, NcclLibrary& nccl, NcclHandle handle,
                             Duration limit) noexcept = 0;

    /// @brief Returns the value of an environment variable, or null.
    virtual char const* variable(char const* name) noexcept = 0;
    /// @brief Sets an environment variable; removes it if `value` is null.
    virtual void set_variable(char const* name, char const* value) noexcept = 0;
};

} // namespace ZERO_NAMESPACE::cuda
