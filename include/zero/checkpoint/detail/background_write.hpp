#pragma once

#include "../../core/detail/namespace.hpp"
#include "file_job.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>

namespace ZERO_NAMESPACE::detail {

/// @brief A thread that writes host memory to one file, with the processor time that training
/// leaves. `wait` takes over its work.
class BackgroundWrite {
public:
    BackgroundWrite() = default;
    BackgroundWrite(BackgroundWrite const&) = delete;
    BackgroundWrite& operator=(BackgroundWrite const&) = delete;

    /// @brief Gives up the data that is not written yet. Prints a failure that was not reported.
    ~BackgroundWrite();

    /// @brief Stops writing, and drops the file and its failure.
    void give_up() noexcept;

    /// @brief Creates the file and starts to write. The memory of the job must stay until the end.
    /// Call `wait` for the previous job first. @throws CheckpointError
    void start(FileJob job);

    /// @brief Returns whether the file is complete or has failed; true if none was started.
    [[nodiscard]] bool is_done() const noexcept { return _is_done; }

    /// @brief Writes the data that the thread has not written yet. @return the checksum of the
    /// file's index
    /// @throws CheckpointError; any other exception of the thread
    std::uint64_t wait();

private:
    /// Writes until the end, a failure, or `stop`.
    void advance(std::atomic<bool> const& stop) noexcept;
    void join() noexcept;

    std::optional<FileWrite> _write;
    std::thread _thread;
    std::atomic<bool> _is_awaited{false};
    std::atomic<bool> _is_done{true};
    std::uint64_t _checksum = 0;
    std::exception_ptr _failure;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "background_write.ipp"
#endif
