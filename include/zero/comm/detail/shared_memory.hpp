#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/host_memory_resource.hpp"
#include "../../core/memory_resource.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The points of a collective at which ranks that read one another's memory wait.
enum class Meeting : std::uint8_t { called, reduced, done, none };

/// @brief A collective as a rank shows it to such peers.
struct SharedCall {
    std::array<std::uint64_t, 3>
        reached{};             ///< by meeting: the hash of the last call that came there
    std::uint64_t send = 0;    ///< offset in the shared memory of what the rank sends
    std::uint64_t receive = 0; ///< the same of what it receives, where peers read that
};

/// @brief What a rank shows its peers, in its own shared memory. Only it writes. Two calls take
/// turns, because a rank may begin the next one while a peer still looks at the last.
using SharedSlot = std::array<SharedCall, 2>;

/// @brief Sleeps until a peer has written a word that is not yet `awaited`, at most half a
/// millisecond: a rank that waits leaves its core to those that compute. May return earlier.
void sleep_until_written(std::uint64_t const& word, std::uint64_t awaited) noexcept;

/// @brief Wakes the peers that sleep until a word of this rank is written.
void wake_readers(std::uint64_t const& word) noexcept;

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
    SharedMemory(SharedMemory&&) = delete;
    SharedMemory& operator=(SharedMemory&&) = delete;
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
    /// Bytes that are lent.
    struct Block {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    [[nodiscard]] std::size_t whole_pages(std::size_t bytes) const noexcept {
        return (bytes + _page - 1) / _page * _page;
    }
    void refuse(char const* what, int error);
    [[nodiscard]] bool drop(void* memory, std::size_t bytes) const noexcept;
    [[nodiscard]] bool set_usable(void* memory, std::size_t bytes, bool is_usable) const noexcept;

    HostMemoryResource _heap;
    std::mutex _mutex;
    std::vector<Block> _blocks; ///< ascending
    List<std::byte const*> _bases;
    std::byte* _memory = nullptr; ///< null: the system refuses
    std::size_t _page = 4096;
    Introduction _own{};
    List<std::size_t> _mapped_bytes; ///< by rank
    std::string _reason;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "shared_memory.ipp"
#endif
