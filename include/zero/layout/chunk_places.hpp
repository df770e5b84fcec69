#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "chunk_plan.hpp"
#include "flat_layout.hpp"
#include "memory_plan.hpp"
#include "piece.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The arrays of one parameter type that are offloaded.
struct ChunkArrays {
    /// The kinds of states that can be offloaded, in the order in which a chunk holds them.
    static constexpr std::array kinds{BufferKind::master_weights, BufferKind::optimizer_state,
                                      BufferKind::parameters};

    std::array<std::vector<ChunkArray>, kinds.size()> of{}; ///< by kind
};

/// @brief Where the arrays of each chunk lie: in a file and in staging memory, or in the memory of
/// what stays.
///
/// A chunk that is offloaded has a number n, and staging slot n modulo `slots()` for ever. In the
/// file it has two parts, because parameters are also read alone, when their bucket is gathered:
/// what only the update uses, and the parameters. A part is one request; it has a checksum of its
/// own. Gathers have slots of their own, for parameters only. Depends on no element type, so it is
/// compiled once.
class ChunkPlaces {
public:
    /// @brief A place in memory.
    struct Place {
        std::size_t kind;   ///< index in `ChunkArrays::kinds`
        bool is_staged;     ///< in staging memory; otherwise in the memory of what stays
        std::size_t offset; ///< from its begin
    };

    ChunkPlaces() = default;

    /// @param arrays by parameter type
    /// @param cuts_slices, slices_of as for `ChunkPlan`
    /// @throws InvalidArgument as `ChunkPlan`
    template <class SlicesOf>
    ChunkPlaces(FlatLayout const& layout, std::span<ChunkArrays const> arrays,
                ChunkOptions const& options, bool cuts_slices, SlicesOf const& slices_of) {
        std::vector<std::vector<ChunkArray>> all;
        std::vector<std::vector<ChunkArray>> frozen;
        start(arrays, all, frozen);
        _plan = ChunkPlan(layout, detail::as_span(all), options, cuts_slices, slices_of,
                          detail::as_span(frozen));
        number_chunks(layout, options.resident_bytes);
    }

    /// @brief The slices and the chunks.
    [[nodiscard]] ChunkPlan const& plan() const noexcept { return _plan; }

    /// @brief Returns the size of each request, without alignment: of part 0 of every chunk that is
    /// offloaded, then of part 1.
    [[nodiscard]] std::vector<std::uint64_t> requests() const;

    /// @brief Places everything.
    /// @param staging_bytes by request: its bytes in staging memory
    /// @param alignment of staging memory
    /// @param depth most chunks in staging memory at once
    void lay_out(std::span<std::size_t const> staging_bytes, std::size_t alignment,
                 std::size_t depth);

    /// @brief The number of parts of a chunk in the file: 2 if parameters are offloaded.
    [[nodiscard]] std::size_t parts() const noexcept { return _has_parameters ? 2 : 1; }

    /// @brief The number of chunks that are offloaded.
    [[nodiscard]] std::size_t numbers() const noexcept { return _chunks.size(); }

    /// @brief The number of those that are updated, which come first.
    [[nodiscard]] std::size_t updated_numbers() const noexcept { return _updated_numbers; }

    /// @brief The chunk of a number, and the number of a chunk that is offloaded.
    [[nodiscard]] std::size_t chunk(std::size_t number) const noexcept { return _chunks[number]; }
    /// @copydoc chunk
    [[nodiscard]] std::size_t number(std::size_t chunk) const noexcept {
        return _of_chunk[chunk].number;
    }

    /// @brief The request that moves a part of a chunk.
    [[nodiscard]] std::size_t request(std::size_t number, std::size_t part) const noexcept {
        return part * numbers() + number;
    }

    /// @brief Whether a gather reads the parameters of a chunk from the file.
    [[nodiscard]] bool has_offloaded_parameters(std::size_t chunk) const noexcept {
        return _plan.chunks()[chunk].is_offloaded && !_of_chunk[chunk].keeps_parameters;
    }

    /// @brief Whether some states of a kind lie in the file.
    [[nodiscard]] bool is_in_file(BufferKind kind) const noexcept;

    /// @brief The parameter type of a chunk.
    [[nodiscard]] std::size_t type(std::size_t chunk) const noexcept {
        return _of_chunk[chunk].type;
    }

    /// @brief The bytes of a part in staging memory, and where it begins in the slot of its chunk.
    [[nodiscard]] std::size_t part_bytes(std::size_t number, std::size_t part) const noexcept {
        return _staging_bytes[request(number, part)];
    }
    /// @copydoc part_bytes
    [[nodiscard]] std::size_t part_begin(std::size_t number, std::size_t part) const noexcept {
        return part == 0 ? 0 : part_bytes(number, 0);
    }

    /// @brief The staging slots of the update, and those of gathers.
    [[nodiscard]] std::size_t slots() const noexcept { return _slots; }
    /// @copydoc slots
    [[nodiscard]] std::size_t gather_slots() const noexcept {
        return _gather_slot_bytes == 0 ? 0 : _slots;
    }

    /// @brief The offset of a chunk's slot in staging memory, and of a gather slot.
    [[nodiscard]] std::size_t slot_begin(std::size_t number) const noexcept {
        return number % _slots * _slot_bytes;
    }
    /// @copydoc slot_begin
    [[nodiscard]] std::size_t gather_slot_begin(std::size_t slot) const noexcept {
        return _slots * _slot_bytes + slot * _gather_slot_bytes;
    }

    /// @brief The alignment of staging memory, and its bytes with what aligning takes.
    [[nodiscard]] std::size_t alignment() const noexcept { return _alignment; }
    /// @copydoc alignment
    [[nodiscard]] std::size_t staging_bytes() const noexcept;

    /// @brief The bytes of one kind that stay in memory. @param kind index in `ChunkArrays::kinds`
    [[nodiscard]] MemoryRow resident(std::size_t kind) const noexcept { return _resident[kind]; }

    /// @brief Returns the place of the slice that begins at element `index` of a bucket.
    /// @param array number of the array among those of its kind
    [[nodiscard]] Place place(std::size_t bucket, std::size_t index, BufferKind kind,
                              std::size_t array) const;

    /// @brief Sets the rows of a memory plan that are not those of memory alone: of the kinds that
    /// are offloaded, of staging memory, and the size of the file.
    void add_to(MemoryPlan& plan) const;

private:
    struct OfChunk {
        std::size_t number = 0; ///< of those that are offloaded
        std::size_t type = 0;
        bool keeps_parameters = false;                              ///< in memory
        std::array<std::size_t, ChunkArrays::kinds.size()> begin{}; ///< by kind
    };

    void start(std::span<ChunkArrays const> arrays, std::vector<std::vector<ChunkArray>>& all,
               std::vector<std::vector<ChunkArray>>& frozen);
    void number_chunks(FlatLayout const& layout, std::uint64_t resident_bytes);
    [[nodiscard]] bool is_staged(std::size_t chunk, std::size_t kind) const noexcept;
    [[nodiscard]] std::uint64_t kind_bytes(std::size_t chunk, std::size_t kind) const noexcept;

    std::vector<ChunkArrays> _arrays; ///< by parameter type
    ChunkPlan _plan;
    bool _has_parameters = false;
    std::vector<OfChunk> _of_chunk;
    std::vector<std::size_t> _chunks;   ///< by number
    std::vector<std::size_t> _chunk_of; ///< by slice
    std::vector<std::size_t> _blocks;   ///< by slice: blocks before it in its chunk
    std::size_t _updated_numbers = 0;
    std::vector<std::size_t> _staging_bytes; ///< by request
    std::size_t _alignment = ChunkPlan::array_alignment;
    std::size_t _slots = 0;
    std::size_t _slot_bytes = 0;
    std::size_t _gather_slot_bytes = 0;
    std::array<MemoryRow, ChunkArrays::kinds.size()> _resident{};
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/plan/chunk_places.ipp"
#endif
