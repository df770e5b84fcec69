#pragma once

#include "../../../core/buffer.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/detail/plan/count_blocks.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/shard_map.hpp"
#include "../../../layout/stage_table.hpp"
#include "../common/engine_context.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Maps elements of buckets to offsets in a `PlacedBuffer`.
class PlacedOffsets {
public:
    PlacedOffsets() = default;

    /// @param buckets number of buckets that are mapped, from the first on
    /// @param type index of the parameter type; buckets of other types occupy no space
    [[gnu::cold]] PlacedOffsets(FlatLayout const& layout, std::size_t buckets, std::size_t type,
                                std::size_t rank, Placement placement) {
        bool const is_sharded = placement == Placement::sharded;
        std::vector<std::size_t> const begins =
            is_sharded ? shard_begins(layout, rank, type) : replica_begins(layout, type);
        for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
            _first.push_back(is_sharded ? layout.extent(bucket, rank).begin : 0);
            _storage_begin.push_back(begins[bucket]);
        }
        _storage_begin.push_back(begins[buckets]);
    }

    /// @brief Returns the offset of element `index` of a bucket that this rank holds.
    [[nodiscard]] std::size_t at(std::size_t bucket, std::size_t index) const noexcept {
        return _storage_begin[bucket] + (index - _first[bucket]);
    }

    /// @brief The number of elements of the buffer.
    [[nodiscard]] std::size_t elements() const noexcept { return _storage_begin.back(); }

private:
    std::vector<std::size_t> _first;         ///< by bucket: index of the first held element
    std::vector<std::size_t> _storage_begin; ///< by bucket, and the end of the last
};

/// @brief Owns memory for one T per element of the first `buckets` buckets of a parameter type: of
/// all elements if replicated, of this rank's extents if sharded.
///
/// Parameters, accumulation buffer, master weights and moments are stored in it; stages differ only
/// in which collective runs.
template <class T>
class PlacedBuffer {
public:
    PlacedBuffer() = default;

    [[gnu::cold]] PlacedBuffer(FlatLayout const& layout, std::size_t buckets, std::size_t type,
                               std::size_t rank, Placement placement, MemoryResource& memory,
                               BufferKind kind)
        : _offsets(layout, buckets, type, rank, placement),
          _buffer(memory, _offsets.elements(), kind) {}

    /// @brief The address of element `index` of a bucket, which this rank must hold.
    [[nodiscard]] T* at(std::size_t bucket, std::size_t index) const noexcept {
        return _buffer.data() + _offsets.at(bucket, index);
    }

    [[nodiscard]] T* data() const noexcept { return _buffer.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return _buffer.size(); }

private:
    PlacedOffsets _offsets;
    Buffer<T> _buffer;
};

/// @brief Returns how many blocks of 64 elements begin in the slices of a parameter type that this
/// rank holds. Used by `PerBlockBuffer`.
[[gnu::cold]] inline std::size_t count_placed_blocks(FlatLayout const& layout, std::size_t type,
                                                     std::size_t rank, Placement placement) {
    std::size_t blocks = 0;
    for_buckets(layout, {0, layout.trainable_buckets()}, type, [&](std::size_t bucket) {
        blocks += count_blocks(layout, bucket, rank, placement);
    });
    return blocks;
}

/// @brief Owns memory for a few numbers per block of 64 elements. Blocks begin with each slice of a
/// parameter, so two slices never share one, even in adopted blocks, where slices start at any
/// offset.
template <class T>
class PerBlockBuffer {
public:
    PerBlockBuffer() = default;

    /// @param numbers count of numbers per block
    [[gnu::cold]] PerBlockBuffer(FlatLayout const& layout, std::size_t type, std::size_t rank,
                                 Placement placement, std::size_t numbers, MemoryResource& memory,
                                 BufferKind kind)
        : _buffer(memory, count_placed_blocks(layout, type, rank, placement) * numbers, kind),
          _numbers(numbers) {}

    /// @brief Returns the numbers of the next slice of a bucket. Slices are taken in any order.
    [[nodiscard]] T* take(std::size_t /*bucket*/, Piece const& piece) noexcept {
        T* const begin = _buffer.data() + _taken;
        _taken += blocks_of(piece.elements) * _numbers;
        return begin;
    }

    [[nodiscard]] T* data() const noexcept { return _buffer.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return _buffer.size(); }

private:
    Buffer<T> _buffer;
    std::size_t _numbers = 0;
    std::size_t _taken = 0;
};

/// @brief Returns the range of a bucket that a rank updates.
inline Range updated_range(FlatLayout const& layout, std::size_t bucket, std::size_t rank,
                           StageRow const& row) {
    return row.shards_optimizer() ? layout.extent(bucket, rank) : Range{0, layout.elements(bucket)};
}

/// @brief Allocates one T per element of a parameter type that this rank updates.
template <class T, class Config>
PlacedBuffer<T> placed_for_optimizer(TypeContext<Config> const& context, MemoryResource& memory,
                                     BufferKind kind) {
    FlatLayout const& layout = *context.layout;
    return {layout,
            layout.trainable_buckets(),
            context.type,
            context.shard_rank(),
            context.row.optimizer_state,
            memory,
            kind};
}

} // namespace ZERO_NAMESPACE::detail
