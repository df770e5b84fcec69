#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/codec.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../safetensors_writer.hpp"
#include "../tensor_entry.hpp"
#include "load_plan.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

/// @file
/// @brief One rank's data file of a checkpoint: what is in it, and who writes it: the calling
/// thread, or one in the background that gives way to the training (`BackgroundWrite`).

namespace ZERO_NAMESPACE::detail {

/// @brief Memory of a tensor of a file.
struct TensorSource {
    void const* data = nullptr;
    std::size_t bytes = 0;
    bool is_on_host = false;           ///< read without `Staging`
    BlockCodec const* codec = nullptr; ///< of codes, which are written as floats
    std::size_t elements = 0;          ///< of codes
};

/// @brief One rank's data file: its tensors, and the memory to write them from.
struct FileJob {
    std::filesystem::path file;
    std::vector<TensorEntry> tensors;
    std::vector<TensorSource> sources; ///< memory of the tensors, one after the other
};

/// @brief Access to data that the host cannot read; empty for the host's own memory.
struct Staging {
    std::byte* buffer = nullptr; ///< `piece_bytes` bytes of host memory
    /// Copies `(to, from, bytes)` and waits.
    FunctionRef<void*, void const*, std::size_t> copy{};
};

/// @brief Writes a data file piece by piece, so that another thread can take over.
class FileWrite {
public:
    /// @brief Creates the file. @throws CheckpointError
    explicit FileWrite(FileJob job);

    /// @brief Appends the next piece of at most `piece_bytes`.
    /// @return false if all has been appended
    /// @throws CheckpointError
    bool append_next(Staging const& staging);

    /// @brief Makes the file durable. @return the checksum of its index @throws CheckpointError
    std::uint64_t finish() { return _writer.finish(); }

private:
    FileJob _job;
    SafetensorsWriter _writer;
    std::size_t _source = 0;     ///< the memory of the next piece
    std::size_t _begin = 0;      ///< bytes of it that have been appended
    std::vector<float> _decoded; ///< piece of a source in codes
};

/// @brief Writes a whole data file. @return the checksum of its index @throws CheckpointError
std::uint64_t write_file(FileJob job, Staging const& staging);

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
    /// @param staging if it has a buffer, the caller writes the data through it, and the thread
    /// only makes the file durable
    void start(FileJob job, Staging const& staging);

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
#include "file_job.ipp"
#endif
