#pragma once

#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../host/queue.hpp"
#include "../../../host/threaded_queue.hpp"
#include "../../../tier/file_tier.hpp"
#include "../../../tier/tier_error.hpp"
#include "engine_memory.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Copies memory of the host, for `ParkedBlocks`. A device has a `Copier` of its own.
struct HostCopier {
    void operator()(void* to, void const* from, std::size_t bytes) const noexcept {
        std::memcpy(to, from, bytes);
    }
};

/// @brief Owns what one call of `offload_states` moved: a file, or memory of the host, and a thread
/// that moves blocks there and back. To a file it moves them through staging memory that exists
/// only meanwhile.
///
/// The memory of blocks is given back when all of them are copied, so a failed copy loses nothing.
/// `finish` gives the caller's thread what the other thread found.
/// @tparam Copier copies between blocks and the host, on the thread, and waits
template <class Copier>
class ParkedBlocks {
public:
    /// @param memory must outlive this object; its blocks must stay while it has kinds
    /// @param kinds the blocks of these kinds that have memory are moved
    /// @param file null: to memory of the host
    /// @param host for what the host uses: commands, and staging memory or what is moved; must
    /// outlive this object
    /// @throws InvalidArgument, TierError, std::bad_alloc, what `host` throws; nothing was changed
    [[gnu::cold]] ParkedBlocks(EngineMemory& memory, KindSet kinds, FileTierOptions const* file,
                               MemoryResource& host, std::string const& rank)
        : _memory(&memory), _host(&host), _rank(rank), _kinds(kinds),
          _chunks(
              chunks_of(memory, kinds, file != nullptr ? file->chunk_bytes : ~std::uint64_t{0})),
          _worker(4, host) {
        if (file == nullptr) {
            std::size_t bytes = 0;
            for (Chunk& chunk : _chunks) {
                chunk.held = bytes;
                bytes += chunk.bytes;
            }
            _held = Buffer<std::byte>(host, bytes, BufferKind::staging);
            return;
        }
        _tier.emplace(*file, sizes_of(_chunks), rank + ": offload_states()", host, ".");
        _tier->describe_by(
            [](void const* context, std::size_t index) {
                Chunk const& chunk = static_cast<ParkedBlocks const*>(context)->_chunks[index];
                return text({name_of(chunk.kind), ", bytes ", chunk.offset, " to ",
                             chunk.offset + chunk.bytes, " of a buffer"});
            },
            this);
    }

    ParkedBlocks(ParkedBlocks const&) = delete;
    ParkedBlocks& operator=(ParkedBlocks const&) = delete;

    /// @brief Ends what is under way before its end. Values that are away are lost.
    ~ParkedBlocks() {
        _is_ended = true;
        _done.synchronise();
    }

    /// @brief Returns the kinds that the engine may not use.
    [[nodiscard]] KindSet kinds() const noexcept { return _kinds; }

    /// @brief Returns whether they are in a file, and not in memory of the host.
    [[nodiscard]] bool is_file() const noexcept { return _tier.has_value(); }

    /// @brief Returns the kinds that have left the memory. Does not wait.
    [[nodiscard]] KindSet moved() const noexcept {
        bool const is_done = _done.is_complete() && _failure == nullptr;
        return _is_writing && !is_done ? KindSet() : is_done ? _kinds - _returning : _kinds;
    }

    /// @brief Returns the kinds that are on their way back.
    [[nodiscard]] KindSet returning() const noexcept { return _returning; }

    /// @brief Begins to move the blocks away. The engine must not use them.
    /// @throws std::bad_alloc; nothing was changed
    [[gnu::cold]] void begin_write() {
        speak_as(": offload_states()", nothing_lost);
        _is_writing = true;
        begin([this] { write_all(); });
    }

    /// @brief Begins to move the blocks of some kinds back, after `finish`.
    /// @throws std::bad_alloc; nothing was changed
    [[gnu::cold]] void begin_read(KindSet kinds) {
        speak_as(": reload_states()",
                 "The states are lost; load the last checkpoint into a new engine.");
        std::vector<std::size_t> taken;
        taken.reserve(_chunks.size());
        try {
            for_blocks(kinds, [&](std::size_t block) {
                _memory->take_again(block);
                taken.push_back(block);
            });
            _returning = kinds & _kinds;
            begin([this] { read_all(); });
        } catch (...) { // their values are still away
            for (std::size_t const block : taken) {
                (void)_memory->give_back(block);
            }
            free_staging();
            _returning = {};
            throw;
        }
    }

    /// @brief Waits for what is under way, and throws its failure. After a failed write all blocks
    /// are in memory with their values, and no kind is left. After a failed read they are lost, and
    /// their kinds stay. If there is no memory to take blocks back after a failed write, they stay
    /// away.
    [[gnu::cold]] void finish() {
        _done.synchronise();
        KindSet const returned = std::exchange(_returning, KindSet());
        std::exception_ptr const failure = std::exchange(_failure, nullptr);
        bool const was_writing = std::exchange(_is_writing, false);
        if (failure != nullptr && was_writing) {
            if (_is_written) { // some memory could not be given back; the rest returns
                begin_read(_kinds);
                finish();
            }
            _kinds = {};
        }
        if (failure != nullptr) {
            _is_lost = _is_lost || !was_writing;
            std::rethrow_exception(failure);
        }
        _kinds = _kinds - returned;
    }

    /// @brief Returns whether a read failed.
    [[nodiscard]] bool is_lost() const noexcept { return _is_lost; }

private:
    /// A part of a block, which moves as one request.
    struct Chunk {
        std::size_t block;
        std::size_t offset;
        std::size_t bytes;
        BufferKind kind;
        std::size_t held; ///< offset in the memory of the host, without a file
    };

    /// Staging memory of one chunk at a time.
    struct Slot {
        std::byte* memory = nullptr;
        host::Event done{};
    };

    static std::vector<Chunk> chunks_of(EngineMemory const& memory, KindSet kinds,
                                        std::uint64_t chunk_bytes) {
        std::vector<Chunk> chunks;
        auto const& blocks = memory.blocks();
        for (std::size_t block = 0; block < blocks.size(); ++block) {
            for (std::size_t at = 0; kinds.has(blocks[block].kind) && !blocks[block].is_away
                                     && at < blocks[block].bytes;) {
                auto const most = static_cast<std::size_t>(chunk_bytes);
                std::size_t const bytes = smaller(most, blocks[block].bytes - at);
                chunks.push_back({block, at, bytes, blocks[block].kind, 0});
                at += bytes;
            }
        }
        return chunks;
    }

    static std::vector<std::uint64_t> sizes_of(std::vector<Chunk> const& chunks) {
        std::vector<std::uint64_t> sizes;
        for (Chunk const& chunk : chunks) {
            sizes.push_back(chunk.bytes);
        }
        return sizes;
    }

    void speak_as(char const* call, char const* last_sentence) {
        if (_tier.has_value()) {
            _tier->speak_as(_rank + call, last_sentence);
        }
    }

    /// Calls `visit(block)` for the blocks of some kinds that are away.
    template <class Visit>
    void for_blocks(KindSet kinds, Visit const& visit) const {
        for (Chunk const& chunk : _chunks) {
            if (chunk.offset == 0 && (kinds & _kinds).has(chunk.kind)) {
                visit(chunk.block);
            }
        }
    }

    void make_staging() {
        std::size_t largest = 0;
        for (std::size_t chunk = 0; chunk < _chunks.size(); ++chunk) {
            largest = larger(largest, _tier->staging_bytes(chunk));
        }
        std::size_t const aligned = _tier->alignment();
        std::size_t const slots = smaller(_slots.size(), _chunks.size());
        _staging = Buffer<std::byte>(*_host, slots * largest + aligned, BufferKind::staging);
        auto const address = reinterpret_cast<std::uintptr_t>(_staging.data());
        std::size_t const gap = (aligned - address % aligned) % aligned;
        for (std::size_t slot = 0; slot < slots; ++slot) {
            _slots[slot] = {_staging.data() + gap + slot * largest, {}};
        }
    }

    template <class Move>
    void begin(Move const& move) {
        if (_tier.has_value()) {
            make_staging();
        }
        _worker.enqueue([this, move] {
            try {
                move();
            } catch (...) {
                _failure = std::current_exception();
            }
            for (Slot const& slot : _slots) { // no request outlives its staging memory
                slot.done.synchronise();
            }
            free_staging();
        });
        _done = _worker.record();
    }

    /// A heap may keep freed blocks, so the pages are given back before.
    void free_staging() noexcept {
        MemoryResource& memory = *_host;
        constexpr auto kind = BufferKind::staging;
        if (_staging.size() != 0
            && memory.give_back_pages(_staging.data(), _staging.size(), kind)) {
            try {
                memory.take_pages_again(_staging.data(), _staging.size(), kind);
            } catch (std::exception const&) { // the heap must not get addresses without memory
                (void)new (std::nothrow) Buffer<std::byte>(std::move(_staging));
            }
        }
        _staging = {};
    }

    void wait_for(Slot const& slot) const {
        slot.done.synchronise();
        _tier->rethrow_failure();
    }

    void write_all() {
        for (std::size_t index = 0; index < _chunks.size() && !_is_ended; ++index) {
            Chunk const& chunk = _chunks[index];
            if (!_tier.has_value()) {
                _copy(_held.data() + chunk.held, address(chunk), chunk.bytes);
                continue;
            }
            Slot& slot = _slots[index % _slots.size()];
            wait_for(slot);
            _copy(slot.memory, address(chunk), chunk.bytes);
            slot.done = _tier->write(index, slot.memory);
        }
        for (std::size_t slot = 0; slot < _slots.size() && _tier.has_value(); ++slot) {
            wait_for(_slots[slot]);
        }
        _is_written = !_is_ended;
        for_blocks(_kinds, [&](std::size_t block) {
            if (_is_written && !_memory->give_back(block)) {
                throw_error<TierError>(
                    {"zero: ", _rank, ": offload_states(): the memory of ",
                     name_of(_memory->blocks()[block].kind), " was not given back: ",
                     std::is_same_v<Copier, HostCopier>
                         ? "it is locked (mlockall) or of huge pages"
                         : "the device unmapped no page (zero::cuda::take_clean_up_error() says "
                           "why)",
                     ", or give_back_pages() of the memory resource returned false. ",
                     nothing_lost});
            }
        });
    }

    void read_all() {
        std::array<Chunk const*, most_slots> held{};
        std::size_t next = 0; // slot
        auto const take = [&] {
            if (held[next] != nullptr) {
                wait_for(_slots[next]);
                _copy(address(*held[next]), _slots[next].memory, held[next]->bytes);
            }
            held[next] = nullptr;
        };
        for (std::size_t index = 0; index < _chunks.size() && !_is_ended; ++index) {
            Chunk const& chunk = _chunks[index];
            if (!_returning.has(chunk.kind)) {
                continue;
            }
            if (!_tier.has_value()) {
                _copy(address(chunk), _held.data() + chunk.held, chunk.bytes);
                continue;
            }
            take();
            _slots[next].done = _tier->read(index, _slots[next].memory);
            held[next] = &chunk;
            next = (next + 1) % _slots.size();
        }
        for (std::size_t slot = 0; slot < _slots.size(); ++slot) {
            take();
            next = (next + 1) % _slots.size();
        }
    }

    [[nodiscard]] std::byte* address(Chunk const& chunk) const noexcept {
        return static_cast<std::byte*>(_memory->blocks()[chunk.block].data) + chunk.offset;
    }

    static constexpr char const* nothing_lost =
        "Nothing is lost: these states are in memory, as before.";
    static constexpr std::size_t most_slots = 2 * FileTier::queues;

    EngineMemory* _memory;
    MemoryResource* _host;
    Copier _copy{};    ///< used by the worker
    std::string _rank; ///< for messages
    KindSet _kinds;
    KindSet _returning;
    bool _is_writing = false;
    bool _is_lost = false;
    std::vector<Chunk> _chunks;
    std::atomic<bool> _is_ended{false};
    bool _is_written = false;            ///< set by the worker: all blocks are copied
    std::exception_ptr _failure;         ///< set by the worker
    std::array<Slot, most_slots> _slots; ///< used by the worker
    Buffer<std::byte> _staging;
    Buffer<std::byte> _held; ///< without a file
    host::Event _done{};
    std::optional<FileTier> _tier;
    host::WaitingQueue _worker; ///< last: ends before what it uses
};

} // namespace ZERO_NAMESPACE::detail
