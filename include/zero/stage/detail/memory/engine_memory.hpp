#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief A set of `BufferKind`.
class KindSet {
public:
    constexpr KindSet() = default;

    /// @brief Returns the kinds that `offload_states` can move: all that grow with the model.
    [[nodiscard]] static constexpr KindSet movable() noexcept {
        return of(std::initializer_list<BufferKind>{
            BufferKind::parameters, BufferKind::gradients, BufferKind::master_weights,
            BufferKind::optimizer_state, BufferKind::gradient_leases, BufferKind::parameter_leases,
            BufferKind::held_sums, BufferKind::secondary_copies, BufferKind::gradient_errors});
    }

    /// @brief Returns the kinds of a list or vector.
    template <class Kinds>
    [[nodiscard]] static constexpr KindSet of(Kinds const& kinds) noexcept {
        KindSet set;
        for (BufferKind const kind : kinds) {
            set.add(kind);
        }
        return set;
    }

    constexpr void add(BufferKind kind) noexcept { _bits |= bit(kind); }
    [[nodiscard]] constexpr bool has(BufferKind kind) const noexcept {
        return (_bits & bit(kind)) != 0;
    }
    [[nodiscard]] constexpr bool is_empty() const noexcept { return _bits == 0; }

    constexpr friend KindSet operator|(KindSet a, KindSet b) noexcept {
        return KindSet(a._bits | b._bits);
    }
    constexpr friend KindSet operator&(KindSet a, KindSet b) noexcept {
        return KindSet(a._bits & b._bits);
    }
    /// @brief Returns the kinds of `a` that are not in `b`.
    constexpr friend KindSet operator-(KindSet a, KindSet b) noexcept {
        return KindSet(a._bits & ~b._bits);
    }

private:
    explicit constexpr KindSet(std::uint32_t bits) noexcept : _bits(bits) {}
    static constexpr std::uint32_t bit(BufferKind kind) noexcept {
        return std::uint32_t{1} << static_cast<unsigned>(kind);
    }

    std::uint32_t _bits = 0;
};

/// @brief Passes allocations of an engine to its memory resource, and lists those that
/// `offload_states` can move. The resource must outlive it.
///
/// Engines may share a resource, so the resource cannot say which blocks are whose.
class EngineMemory final : public MemoryResource {
public:
    struct Block {
        void* data;
        std::size_t bytes;
        BufferKind kind;
        bool is_away; ///< its memory was given back
    };

    explicit EngineMemory(MemoryResource& memory) noexcept : _memory(&memory) {}

    [[gnu::cold]] void* allocate(std::size_t bytes, BufferKind kind) override {
        if (!KindSet::movable().has(kind)) {
            return _memory->allocate(bytes, kind);
        }
        _blocks.push_back({nullptr, bytes, kind, false}); // first, because it may throw
        try {
            _blocks.back().data = _memory->allocate(bytes, kind);
        } catch (...) {
            _blocks.pop_back();
            throw;
        }
        return _blocks.back().data;
    }

    [[gnu::cold]] void deallocate(void* memory, std::size_t bytes,
                                  BufferKind kind) noexcept override {
        if (KindSet::movable().has(kind)) {
            for (Block& block : _blocks) {
                if (block.data == memory) {
                    Block const found = block;
                    block = _blocks.back();
                    _blocks.pop_back();
                    if (found.is_away && !is_taken(found)) {
                        return; // the heap must not get addresses without memory
                    }
                    break;
                }
            }
        }
        _memory->deallocate(memory, bytes, kind);
    }

    /// @brief Returns the blocks in use of the movable kinds.
    [[nodiscard]] std::vector<Block> const& blocks() const noexcept { return _blocks; }

    /// @brief Returns the resource of the engine's options.
    [[nodiscard]] MemoryResource& resource() const noexcept { return *_memory; }

    /// @brief Gives back the memory of a block. @return false if the system refuses
    [[gnu::cold]] [[nodiscard]] bool give_back(std::size_t block) noexcept {
        Block& own = _blocks[block];
        own.is_away = _memory->give_back_pages(own.data, own.bytes, own.kind);
        return own.is_away;
    }

    /// @brief Takes memory for a block again; a no-op if it has some. @throws std::bad_alloc
    [[gnu::cold]] void take_again(std::size_t block) {
        Block& own = _blocks[block];
        if (own.is_away) {
            _memory->take_pages_again(own.data, own.bytes, own.kind);
            own.is_away = false;
        }
    }

private:
    [[nodiscard]] bool is_taken(Block const& block) noexcept {
        try {
            _memory->take_pages_again(block.data, block.bytes, block.kind);
        } catch (std::exception const&) {
            return false;
        }
        return true;
    }

    MemoryResource* _memory;
    std::vector<Block> _blocks;
};

} // namespace ZERO_NAMESPACE::detail
