#pragma once

#include "../../core/detail/namespace.hpp"
#include "file_job.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>

namespace ZERO_NAMESPACE::detail {

/// @brief A thread that writes one file of host memory.
class BackgroundWrite {
public:
    BackgroundWrite() = default;
    BackgroundWrite(BackgroundWrite const&) = delete;
    BackgroundWrite& operator=(BackgroundWrite const&) = delete;

    /// @brief Waits. Prints a failure that was not reported.
    ~BackgroundWrite();

    /// @brief Starts to write. The memory of the job must stay until the end. Call `wait` for the
    /// job before.
    void start(FileJob job);

    /// @brief Whether the thread has ended, with or without success; true if none was started.
    [[nodiscard]] bool is_done() const noexcept { return _is_done; }

    /// @brief Waits for the end. @return the checksum of the file's index
    /// @throws CheckpointError what the thread threw
    std::uint64_t wait();

private:
    std::thread _thread;
    std::atomic<bool> _is_done{true};
    std::uint64_t _checksum = 0;
    std::exception_ptr _failure;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "background_write.ipp"
#endif
