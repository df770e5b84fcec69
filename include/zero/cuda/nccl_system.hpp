#pragma once

#include "../core/detail/namespace.hpp"
#include "nccl_library.hpp"

#include <chrono>

namespace ZERO_NAMESPACE::cuda {

using NcclWork = void (*)(
    NcclLibrary& nccl, NcclHandle handle); ///< what `NcclSystem::run_bounded` runs; must not throw

/// @brief What the communicator needs beside NCCL: devices, events, time, threads and environment
/// variables; replaceable like `NcclLibrary`.
///
/// The functions that return int return codes of the CUDA runtime, 0 for success.
class NcclSystem {
public:
    using Duration = std::chrono::milliseconds; ///< of time-outs, and of the clock
    using EventHandle = void*;                  ///< a cudaEvent_t

    NcclSystem() = default;
    NcclSystem(NcclSystem const&) = delete;
    NcclSystem& operator=(NcclSystem const&) = delete;
    virtual ~NcclSystem() = default;

    /// @brief How many devices this process sees.
    virtual int device_count(int& devices) noexcept = 0;
    /// @brief The device of the calling thread, from 0.
    virtual int current_device(int& device) noexcept = 0;
    /// @brief Makes a device the calling thread's.
    virtual int set_device(int device) noexcept = 0;
    /// @brief The CUDA runtime's own text for a code; static.
    virtual char const* error_string(int code) noexcept = 0;

    /// @brief An event of the current device, without times.
    virtual int create_event(EventHandle& event) noexcept = 0;
    /// @brief Moves the event to the point after all work on `stream` so far.
    virtual int record_event(EventHandle event, StreamHandle stream) noexcept = 0;
    /// @brief Asks without waiting; may be called from any thread, also while another captures a
    /// graph.
    virtual int is_event_complete(EventHandle event, bool& is_complete) noexcept = 0;
    /// @brief Frees an event. Errors are ignored: the runtime may be shutting down.
    virtual void destroy_event(EventHandle event) noexcept = 0;
    /// @brief Is the stream captured into a graph, so that events recorded on it cannot be asked?
    virtual int is_capturing(StreamHandle stream, bool& is_capturing) noexcept = 0;

    /// @brief Time since any fixed point; never goes back.
    virtual Duration now() noexcept = 0;
    /// @brief Gives other threads time before the next question; `turn` counts the pauses of one
    /// wait.
    virtual void pause(unsigned turn) noexcept = 0;
    /// @brief Runs `work(nccl, handle)` on a thread of its own, whose device is `device`, and waits
    /// for it at most `limit`; what takes longer goes on by itself. Where no thread can be made it
    /// runs on the calling one. @return whether it has ended
    virtual bool run_bounded(int device, NcclWork work, NcclLibrary& nccl, NcclHandle handle,
                             Duration limit) noexcept = 0;

    /// @brief The value of an environment variable, or null.
    virtual char const* variable(char const* name) noexcept = 0;
    /// @brief Sets an environment variable; removes it when `value` is null.
    virtual void set_variable(char const* name, char const* value) noexcept = 0;
};

} // namespace ZERO_NAMESPACE::cuda
