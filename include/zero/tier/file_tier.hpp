#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"
#include "../host/queue.hpp"
#include "../host/threaded_queue.hpp"
#include "file_calls.hpp"
#include "tier_error.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Options of states that `Offload` moves to a `FileTier`.
struct FileTierOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// A folder that exists, on the disk that shall hold the states. Each rank has a file of its
    /// own in it, without a name.
    std::filesystem::path path{};
    /// Most bytes that move as one request: 1 MiB or more, so that the disk reaches its speed. An
    /// optimizer of whole parameters needs room for the largest.
    std::uint64_t chunk_bytes = std::uint64_t{12} << 20U;
    /// Chunks in staging memory: with 8, three are read and three written while one is updated.
    std::size_t depth = 8;
    double ratio = 1; ///< the part of the bytes that is offloaded, 0 to 1
    /// Bytes of offloaded parameters of this rank that stay in memory nevertheless: first the
    /// trainable ones that a step uses first, whose gathers could not begin earlier. Rounded up to
    /// whole chunks.
    std::uint64_t resident_bytes = 0;
    /// Whether a file system without direct access (O_DIRECT) is used through the page cache, whose
    /// memory the plan does not contain.
    bool allow_page_cache = false;
    /// With `DelayedUpdate`: the first updates of a training, which are not delayed; skipped steps
    /// do not count. Equal on all ranks.
    std::uint64_t warm_up_steps = 0;
    FileCalls* calls = nullptr; ///< replaces the calls of the system, for tests of failures
};

/// @brief Model states in a file: chunks of bytes that are read into staging memory and written
/// back, by threads of its own, in the order of events. Owns the file, which ends with it, also
/// when the process is killed.
///
/// Chunk c is read by reading queue c mod 3 and written by writing queue c mod 3, so that two
/// requests each way are under way while the third computes a checksum. A chunk that was
/// never written is zero. Each chunk has a checksum in memory, computed by those threads when it is
/// written and compared when it is read.
///
/// Nothing is allocated and the file does not grow after construction. A failure is kept, the
/// requests after it on its queue do nothing, and `rethrow_failure` throws it; events complete
/// nevertheless. One thread at a time enqueues.
class FileTier {
public:
    using Options = FileTierOptions;
    static constexpr std::size_t queues = 3; ///< for each direction

    /// @brief Adds the options that are equal on all ranks: all but the place of the file.
    static void add_to(Hash& hash, Options const& options) noexcept {
        hash.add(options.chunk_bytes)
            .add(options.depth)
            .add(options.ratio)
            .add(options.resident_bytes);
    }

    /// @brief Names a chunk for messages: "optimizer state of 'w', elements 0 to 99". Called when a
    /// request failed.
    using Describe = std::string (*)(void const* context, std::size_t chunk);

    /// @param chunks size of each chunk in bytes; every chunk occupies whole multiples of
    ///     `alignment()` in the file
    /// @param owner names the rank in messages: "rank 2"
    /// @param memory for the rings of the queues; must outlive the tier
    /// @param prefix of the options that messages name
    /// @throws InvalidArgument if the folder does not exist, cannot be written, or has no direct
    /// access; TierError if the disk has not the space; nothing is left behind
    FileTier(FileTierOptions const& options, std::span<std::uint64_t const> chunks,
             std::string owner, MemoryResource& memory, char const* prefix = "offload.");

    FileTier(FileTier const&) = delete;
    FileTier& operator=(FileTier const&) = delete;

    /// @brief Cancels what has not begun, waits for the requests under way, and removes the file.
    ~FileTier();

    /// @brief Returns the alignment of staging memory and the granularity of its size, in bytes.
    [[nodiscard]] std::size_t alignment() const noexcept { return _alignment; }

    /// @brief Returns the bytes of staging memory that a chunk needs: its size, rounded up.
    [[nodiscard]] std::size_t staging_bytes(std::size_t chunk) const noexcept {
        return static_cast<std::size_t>(_begin[chunk + 1] - _begin[chunk]);
    }

    /// @brief Returns the size of the file.
    [[nodiscard]] std::uint64_t size_bytes() const noexcept { return _begin.back(); }

    /// @brief Returns the first of `staging_bytes` addresses that stand for a chunk as long as the
    /// tier lives. No memory has them, so access through them ends the program.
    [[nodiscard]] std::byte* address(std::size_t chunk) const noexcept {
        return _addresses + _begin[chunk];
    }

    /// @brief Returns the chunk for which an address stands; the number of chunks if for none.
    [[nodiscard]] std::size_t chunk_at(void const* address) const noexcept;

    /// @brief Returns the queue that reads a chunk, so that it can wait for events.
    [[nodiscard]] host::Queue* reading_queue(std::size_t chunk) noexcept {
        return _reads[chunk % queues].get();
    }

    /// @brief Returns the queue that writes a chunk.
    [[nodiscard]] host::Queue* writing_queue(std::size_t chunk) noexcept {
        return _writes[chunk % queues].get();
    }

    /// @brief Returns the bytes of the queues' rings, in the memory resource.
    [[nodiscard]] std::size_t command_bytes() const noexcept;

    /// @brief Enqueues a read of a whole chunk. @param to `staging_bytes(chunk)` bytes
    /// @return the point after it
    host::Event read(std::size_t chunk, void* to);

    /// @brief Enqueues a write of a whole chunk.
    /// @param is_left_out read when the write begins: whether it does nothing; null writes always
    /// @return the point after it
    host::Event write(std::size_t chunk, void const* from, bool const* is_left_out = nullptr);

    /// @brief Throws the first failure of a request, if there is one.
    void rethrow_failure() const;

    /// @brief Lets requests fail that have not begun, and those between two calls of the system. A
    /// call under way ends by itself. For a broken engine that ends.
    void cancel() noexcept { _is_cancelled = true; }

    /// @brief Returns the bytes that were read and written.
    [[nodiscard]] std::uint64_t bytes_read() const noexcept { return _bytes_read; }
    /// @copydoc bytes_read
    [[nodiscard]] std::uint64_t bytes_written() const noexcept { return _bytes_written; }

    /// @brief Lets messages name a chunk by what it holds; `context` must outlive the tier.
    void describe_by(Describe describe, void const* context) noexcept {
        _describe = describe;
        _context = context;
    }

    /// @brief Replaces what messages of failed requests begin with, and their last sentence, which
    /// says that the states are lost. No request may be under way.
    /// @param last_sentence must outlive the tier
    void speak_as(std::string owner, char const* last_sentence) noexcept {
        _owner = std::move(owner);
        _last_sentence = last_sentence;
    }

private:
    struct State {
        std::uint64_t checksum = 0;
        bool is_written = false;
    };

    void read_now(std::size_t chunk, std::byte* to);
    void write_now(std::size_t chunk, std::byte const* from);
    template <class Transfer>
    void transfer_all(std::size_t chunk, char const* what, Transfer const& transfer) const;
    [[noreturn]] void fail(std::size_t chunk, std::string const& what, int code) const;
    [[nodiscard]] std::size_t data_bytes(std::size_t chunk) const noexcept {
        return static_cast<std::size_t>(_bytes[chunk]);
    }

    FileCalls* _calls;
    std::string _owner;
    std::string _path;
    std::size_t _alignment = 1;
    std::vector<std::uint64_t> _bytes; ///< by chunk: its size
    std::vector<std::uint64_t> _begin; ///< by chunk, and the end of the last: place in the file
    std::vector<State> _states;        ///< by chunk; used by the queues, in the order of events
    Describe _describe = nullptr;
    void const* _context = nullptr;
    char const* _last_sentence = "The states are lost; load the last checkpoint into a new engine.";
    std::atomic<bool> _is_cancelled{false};
    std::atomic<std::uint64_t> _bytes_read{0};
    std::atomic<std::uint64_t> _bytes_written{0};
    int _file = -1;
    std::byte* _addresses = nullptr; ///< stand for the file; no memory is behind them
    std::unique_ptr<host::WaitingQueue> _reads[queues];
    std::unique_ptr<host::WaitingQueue> _writes[queues];
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/file_tier.ipp"
#endif
