#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"
#include "piece.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief An array of a rank's shard that is offloaded, such as one moment.
struct ChunkArray {
    std::size_t element_bytes = 0; ///< bytes for each element
    std::size_t block_bytes = 0;   ///< bytes for each started block of 64 elements of a slice
};

/// @brief How the own slices are cut into chunks.
struct ChunkOptions {
    /// At most this many bytes of a chunk, its alignment included. An optimizer of whole parameters
    /// needs chunks that hold the largest slice.
    std::uint64_t chunk_bytes = std::uint64_t{32} << 20U;
    double ratio = 1; ///< the part of the bytes that is offloaded, 0 to 1
    /// At least this many bytes of parameters stay in memory, as far as there are so many: those
    /// of the first chunks.
    std::uint64_t resident_bytes = 0;
};

/// @brief The slices that a rank updates, in the order of the update (buckets from the last to the
/// first), and the chunks of consecutive slices that move between a tier and staging memory at
/// once. If parameters are offloaded, the slices of frozen buckets follow.
///
/// The arrays of a chunk lie one after the other, each at a multiple of `array_alignment`; an array
/// holds the slices of the chunk one after the other, each with whole blocks. Depends on no element
/// type, so it is compiled once.
class ChunkPlan {
public:
    static constexpr std::size_t array_alignment = 128; ///< bytes

    /// @brief Consecutive slices of one bucket.
    struct Chunk {
        std::size_t bucket = 0;      ///< the bucket that holds its slices
        std::size_t first_slice = 0; ///< index of the first in `slices()`
        std::size_t slices = 0;      ///< number of slices
        std::uint64_t bytes = 0;     ///< size with the gaps between its arrays
        bool is_offloaded = false;   ///< otherwise it stays in memory
    };

    ChunkPlan() = default;

    /// @param arrays by parameter type: the arrays that are offloaded
    /// @param cuts_slices whether a slice may be cut at a multiple of 64 elements from its begin
    /// @param slices_of `slices_of(bucket, list)` appends the slices that the rank updates in this
    ///     bucket, in ascending order
    /// @param frozen as `arrays`, for buckets that are not updated; empty leaves these out. Their
    /// chunks have no more elements than those of `arrays`, for which staging memory is made
    /// @throws InvalidArgument if the ratio is not in [0, 1], or a chunk cannot hold one block, or
    /// one slice that must not be cut
    template <class SlicesOf>
    ChunkPlan(FlatLayout const& layout, std::span<std::vector<ChunkArray> const> arrays,
              ChunkOptions const& options, bool cuts_slices, SlicesOf const& slices_of,
              std::span<std::vector<ChunkArray> const> frozen = {}) {
        start(layout, options);
        std::vector<Piece> own;
        auto const add_bucket = [&](std::size_t bucket, auto const& offloaded, bool is_cut) {
            own.clear();
            slices_of(bucket, own);
            std::size_t const type = layout.bucket(bucket).type;
            add(layout, bucket, own, arrays[type], offloaded[type], options, is_cut);
        };
        for (std::size_t bucket = _trainable; bucket-- > 0;) {
            add_bucket(bucket, arrays, cuts_slices);
        }
        for (std::size_t bucket = _trainable; !frozen.empty() && bucket < layout.buckets();
             ++bucket) {
            add_bucket(bucket, frozen, true);
        }
        choose(options.ratio);
    }

    /// @brief All chunks, in the order of the update.
    [[nodiscard]] std::span<Chunk const> chunks() const noexcept { return _chunks; }

    /// @brief All slices, in the order of the update.
    [[nodiscard]] std::span<Piece const> slices() const noexcept { return _slices; }

    /// @brief The slices of a chunk.
    [[nodiscard]] std::span<Piece const> slices(Chunk const& chunk) const noexcept {
        return {_slices.data() + chunk.first_slice, chunk.slices};
    }

    /// @brief The first chunk of a bucket.
    [[nodiscard]] std::size_t first_chunk(std::size_t bucket) const noexcept {
        return _first_chunk[place(bucket)];
    }

    /// @brief The end of the chunks of a bucket.
    [[nodiscard]] std::size_t end_chunk(std::size_t bucket) const noexcept {
        return _first_chunk[place(bucket) + 1];
    }

    /// @brief The number of chunks that are updated. Those of frozen buckets follow.
    [[nodiscard]] std::size_t updated_chunks() const noexcept { return _first_chunk[_trainable]; }

    /// @brief Returns the bytes of one array for slices of these lengths, with its alignment.
    [[nodiscard]] static std::uint64_t array_bytes(ChunkArray array,
                                                   std::span<Piece const> slices) noexcept;

private:
    [[nodiscard]] std::size_t place(std::size_t bucket) const noexcept {
        return bucket < _trainable ? _trainable - 1 - bucket : bucket;
    }

    void start(FlatLayout const& layout, ChunkOptions const& options);
    void add(FlatLayout const& layout, std::size_t bucket, std::span<Piece const> own,
             std::span<ChunkArray const> limiting, std::span<ChunkArray const> arrays,
             ChunkOptions const& options, bool cuts_slices);
    void choose(double ratio);

    std::vector<Piece> _slices;
    std::vector<Chunk> _chunks;
    std::size_t _trainable = 0;            ///< number of trainable buckets
    std::vector<std::size_t> _first_chunk; ///< by place of the bucket; then the total
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/plan/chunk_plan.ipp"
#endif
