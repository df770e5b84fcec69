#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/host_memory_resource.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/padding.hpp"
#include "../../layout/piece.hpp"
#include "collective_call.hpp"
#include "flight.hpp"
#include "group_place.hpp"

#include <array>
#include <atomic>
#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The points of a collective at which ranks that read one another's memory wait.
enum class Meeting : std::uint8_t { called, reduced, done, none };

/// @brief A collective as a rank shows it to such peers.
struct SharedCall {
    /// By meeting: the last call that came there, its number in the upper half and a hash of it.
    std::array<std::uint64_t, 3> reached{};
    std::uint64_t send = 0;    ///< offset in the shared memory of what the rank sends
    std::uint64_t receive = 0; ///< the same of what it receives, where peers read that
    CallSignature::Words signature{};
};

/// @brief What a rank shows its peers, in its own shared memory. Only it writes. Two calls take
/// turns, because a rank may begin the next one while a peer still looks at the last.
using SharedSlot = std::array<SharedCall, 2>;

/// @brief Returns whether a process of this host has ended. False where the system does not tell.
bool has_ended(std::int64_t process) noexcept;

/// @brief Memory of one process that the other processes of its host map for reading, so that
/// collectives read it in place. Owns what it maps, and blocks of it that it lends as a
/// `MemoryResource`. Transports between processes use it.
///
/// It is one file in memory without a name, as large as the memory of the host: pages that were
/// never written take none. Nothing stays behind when a process is killed, because no name refers
/// to it. A peer opens it by /proc/<process>/fd/<file>, which the system allows to processes of the
/// same user. Each peer maps it once, as a whole, before any block is lent.
class SharedMemory final : public MemoryResource {
public:
    static constexpr std::size_t nowhere = ~std::size_t{0}; ///< the offset of all other memory

    /// @brief What a process tells the others, so that they can map its memory, as numbers.
    struct Introduction {
        std::int64_t process = 0;
        std::int64_t file = -1; ///< none
        std::int64_t bytes = 0;
        std::int64_t key = 0; ///< random; the memory begins with it
    };

    /// @brief Creates the shared memory of a process. If the system refuses, `reason` says so.
    /// @param ranks the processes of the group
    explicit SharedMemory(std::size_t ranks);
    ~SharedMemory() override;

    [[nodiscard]] Introduction const& introduction() const noexcept { return _own; }

    /// @brief Maps the memory of a rank, which may be this one. A no-op the second time.
    void map(std::size_t rank, Introduction const& peer) noexcept;

    /// @brief Closes the file: no process can map this memory from now on.
    void close_file() noexcept;

    /// @brief Returns where the memory of a rank begins in this process; null if it is not mapped.
    [[nodiscard]] std::byte const* base(std::size_t rank) const noexcept { return _bases[rank]; }

    /// @brief Returns the offset of a part of this memory, or `nowhere`. No block has
    /// the offset 0.
    [[nodiscard]] std::size_t offset_of(void const* memory, std::size_t bytes) const noexcept;

    /// @brief Returns why there is none; empty if there is.
    [[nodiscard]] std::string const& reason() const noexcept { return _reason; }

    /// @brief Lends whole pages for the kinds that peers read, otherwise memory of
    /// the heap; also if this one is full.
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override;

    /// @brief Takes memory back. Whole pages return to the system.
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override;

    [[nodiscard]] bool can_give_back_pages() const noexcept override {
        return _heap.can_give_back_pages();
    }
    [[nodiscard]] bool give_back_pages(void* memory, std::size_t bytes,
                                       BufferKind kind) noexcept override;
    void take_pages_again(void* memory, std::size_t bytes, BufferKind kind) override;

private:
    [[nodiscard]] std::size_t whole_pages(std::size_t bytes) const noexcept {
        return round_up(bytes, _page);
    }
    void refuse(char const* what, int error);
    [[nodiscard]] bool drop(void* memory, std::size_t bytes) const noexcept;
    [[nodiscard]] bool set_usable(void* memory, std::size_t bytes, bool is_usable) const noexcept;

    HostMemoryResource _heap;
    std::mutex _mutex;
    std::vector<Range> _blocks; ///< bytes that are lent, ascending
    List<std::byte const*> _bases;
    std::byte* _memory = nullptr; ///< null: the system refuses
    std::size_t _page = 4096;
    Introduction _own{};
    List<std::size_t> _mapped_bytes; ///< by rank
    std::string _reason;
};

/// @brief The ranks of a group that all run on one host: they show one another their calls, and
/// read what the others send where it lies. Transports between processes use it, and wait at its
/// meetings with their own time-outs.
class SharedGroup {
public:
    /// @brief Sends a collective in messages, and waits for it.
    using Send = FunctionRef<CollectiveCall const&, CollectiveMemory const&>;

    /// @brief Takes part in the memory of a group that this one is split from. Before `join`.
    void split_from(SharedGroup const& whole) {
        _memory = whole._memory;
        _place = whole._place;
    }

    /// @brief Maps the memory of all ranks. `reason` says why if one of them could not: then the
    /// group sends messages. Collective; waits. @throws what `send` throws
    /// @param refusal why the caller wants no such memory; empty if it does
    void join(GroupPlace const& place, std::string_view refusal, Send send);

    /// @brief Frees what this rank shows. After all peers have left; otherwise it stays as long as
    /// the memory, because a slower peer may still look whether this rank has come.
    void leave() noexcept;

    [[nodiscard]] bool is_shared() const noexcept { return _slot != nullptr; }

    /// @brief Returns why the ranks send messages; empty if they read one another's memory.
    [[nodiscard]] std::string const& reason() const noexcept { return _reason; }

    /// @brief Returns the memory that the peers read; null: there is none.
    [[nodiscard]] SharedMemory* memory() const noexcept { return _memory.get(); }

    /// @brief Returns the bytes of memory that this group holds.
    [[nodiscard]] std::size_t bytes() const noexcept { return is_shared() ? sizeof *_slot : 0; }

    /// @brief Shows a collective to the peers and, if all memory that they read is shared, adds or
    /// copies what they send. Returns false where it must be sent in messages, which all ranks find
    /// alike.
    /// @param meet calls `come`, and waits for all ranks
    [[nodiscard]] bool run(Flight const& flight, FunctionRef<Meeting> meet);

    /// @brief Tells the peers that this rank has come to a meeting of the call that runs.
    void come(Meeting meeting) noexcept;

    /// @brief Returns whether a rank has come to a meeting of the same call. One that has called
    /// something else does not come.
    [[nodiscard]] bool has_come(std::size_t rank, Meeting meeting) const noexcept {
        return word_of(rank, meeting) == _word;
    }

    /// @brief Sleeps until a rank may have come, at most half a millisecond: a rank that waits
    /// leaves its core to those that compute.
    void sleep(std::size_t rank, Meeting meeting) const noexcept;

    /// @brief Waits until all ranks are in their call of the same number, which may differ, at a
    /// meeting of it. Returns false after `most`.
    [[nodiscard]] bool wait(Meeting meeting, std::chrono::nanoseconds most) const noexcept;

    /// @brief Returns a text about calls that differ; empty if there are none. After `wait`.
    [[nodiscard]] std::string difference() const;

    /// @brief Returns a rank that has not come to a meeting and whose process has ended;
    /// the number of ranks if there is none.
    [[nodiscard]] std::size_t ended(Meeting meeting) const noexcept;

private:
    /// A rank, as this process sees it.
    struct Peer {
        std::byte const* base = nullptr;  ///< of its memory
        SharedSlot const* slot = nullptr; ///< in it
        std::int64_t process = 0;
    };

    [[nodiscard]] SharedCall const& shown(std::size_t rank) const noexcept {
        return (*_peers[rank].slot)[_number % 2];
    }
    [[nodiscard]] std::uint64_t word_of(std::size_t rank, Meeting meeting) const noexcept {
        auto& word = const_cast<std::uint64_t&>( // an atomic constant needs C++26
            shown(rank).reached[static_cast<std::size_t>(meeting)]);
        return std::atomic_ref(word).load(std::memory_order_acquire);
    }
    [[nodiscard]] std::size_t missing(Meeting meeting) const noexcept;
    void show(Flight const& flight) noexcept;
    [[nodiscard]] std::size_t offset_of(Flight const& flight, void const* memory,
                                        std::size_t elements) const noexcept {
        return elements == 0 ? 0 : _memory->offset_of(memory, elements * flight.element_bytes);
    }

    std::shared_ptr<SharedMemory> _memory; ///< of all groups that are split from one
    std::size_t _place = 0;                ///< of this rank among those of the first one
    std::size_t _rank = 0;
    List<Peer> _peers;           ///< by rank
    List<void const*> _pieces;   ///< by rank
    SharedSlot* _slot = nullptr; ///< of this rank
    std::uint64_t _number = 0;   ///< number of calls that were shown
    std::uint64_t _word = 0;     ///< of the last one
    std::string _reason;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "shared_memory.ipp"
#endif
