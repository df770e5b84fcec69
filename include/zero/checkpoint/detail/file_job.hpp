#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../safetensors_writer.hpp"
#include "../tensor_entry.hpp"
#include "staging_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The memory of one tensor of a file.
struct TensorSource {
    void const* data = nullptr;
    std::size_t bytes = 0;
};

/// @brief One rank's data file: its tensors, and the memory to write them from.
struct FileJob {
    std::filesystem::path file;
    std::vector<TensorEntry> tensors;
    std::vector<TensorSource> sources; ///< memory of each tensor
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
    std::size_t _source = 0; ///< the tensor of the next piece
    std::size_t _begin = 0;  ///< bytes of it that have been appended
};

/// @brief Writes a whole data file. @return the checksum of its index @throws CheckpointError
std::uint64_t write_file(FileJob job, Staging const& staging);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "file_job.ipp"
#endif
