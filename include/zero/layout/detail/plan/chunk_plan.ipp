#pragma once

#include "../../chunk_plan.hpp"

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "count_blocks.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::uint64_t ChunkPlan::array_bytes(ChunkArray array,
                                                      std::span<Piece const> slices) noexcept {
    std::uint64_t bytes = 0;
    for (Piece const& slice : slices) {
        // whole blocks, so that each slice begins where wide loads may begin
        bytes += std::uint64_t{detail::blocks_of(slice.elements)}
                 * (array.element_bytes * detail::block_elements + array.block_bytes);
    }
    return (bytes + array_alignment - 1) / array_alignment * array_alignment;
}

ZERO_COLD_INLINE void ChunkPlan::start(FlatLayout const& layout, ChunkOptions const& options) {
    if (!(options.ratio >= 0 && options.ratio <= 1)) {
        detail::throw_error<InvalidArgument>(
            {"zero: offload.ratio is ", options.ratio,
             "; it is the part of the states that is offloaded, from 0 to 1."});
    }
    _trainable = layout.trainable_buckets();
    _first_chunk.push_back(0);
}

ZERO_COLD_INLINE void ChunkPlan::add(FlatLayout const& layout, std::size_t bucket,
                                     std::span<Piece const> own,
                                     std::span<ChunkArray const> limiting,
                                     std::span<ChunkArray const> arrays,
                                     ChunkOptions const& options, bool cuts_slices) {
    std::uint64_t block_bytes = 0; // of all arrays
    for (ChunkArray const& array : limiting) {
        block_bytes += array.element_bytes * detail::block_elements + array.block_bytes;
    }
    // Each array may take less than one alignment more.
    std::uint64_t const gaps = limiting.size() * (array_alignment - 1);
    std::uint64_t most_blocks = ~std::uint64_t{0}; // a type may have nothing to offload
    if (block_bytes != 0) {
        most_blocks = options.chunk_bytes > gaps ? (options.chunk_bytes - gaps) / block_bytes : 0;
    }
    std::uint64_t room = 0; // blocks that the open chunk still takes
    auto const open = [&] {
        _chunks.push_back({bucket, _slices.size(), 0, 0, false});
        room = most_blocks;
    };
    auto const close = [&] {
        Chunk& chunk = _chunks.back();
        for (ChunkArray const& array : arrays) {
            chunk.bytes += array_bytes(array, slices(chunk));
        }
    };
    bool is_open = false;
    for (Piece rest : own) {
        while (rest.elements != 0) {
            std::uint64_t const blocks = detail::blocks_of(rest.elements);
            if (is_open && (room == 0 || (!cuts_slices && blocks > room))) {
                close();
                is_open = false;
            }
            if (!is_open) {
                open();
                is_open = true;
            }
            if (room == 0 || (!cuts_slices && blocks > room)) {
                std::uint64_t most = cuts_slices ? 1 : blocks; // of all ranks
                for (ParameterSpec const& spec : layout.parameters()) {
                    bool const is_whole =
                        !cuts_slices && spec.trainable && spec.type == layout.bucket(bucket).type;
                    most = detail::larger(most, is_whole ? detail::blocks_of(spec.elements) : 0);
                }
                detail::throw_error<InvalidArgument>(
                    {"zero: offload.chunk_bytes is ", options.chunk_bytes,
                     " bytes, but a chunk must hold all that is offloaded of ",
                     cuts_slices ? "64 elements" : "the part that this rank updates", " of '",
                     layout.parameter(rest.parameter).name,
                     "': ", (cuts_slices ? 1 : blocks) * block_bytes + gaps,
                     " bytes; set it to at least ", most * block_bytes + gaps,
                     cuts_slices ? "." : ", which is enough for every parameter."});
            }
            std::uint64_t const taken = detail::smaller(blocks, room);
            std::size_t const elements = detail::smaller(
                rest.elements, static_cast<std::size_t>(taken) * detail::block_elements);
            _slices.push_back({rest.parameter, rest.parameter_begin, rest.bucket_begin, elements});
            ++_chunks.back().slices;
            room -= taken;
            rest.parameter_begin += elements;
            rest.bucket_begin += elements;
            rest.elements -= elements;
        }
    }
    if (is_open) {
        close();
    }
    _first_chunk.push_back(_chunks.size());
}

/// A chunk is offloaded where the sum of the bytes so far passes the next part that the ratio asks
/// for: the chunks that stay are spread evenly, and the bytes are right within one chunk.
ZERO_COLD_INLINE void ChunkPlan::choose(double ratio) {
    std::uint64_t all = 0;
    std::uint64_t offloaded = 0;
    for (Chunk& chunk : _chunks) {
        all += chunk.bytes;
        double const wanted = ratio * static_cast<double>(all);
        auto const with = static_cast<double>(offloaded + chunk.bytes);
        // offloaded if that is nearer to what is wanted
        chunk.is_offloaded =
            chunk.bytes != 0 && ratio != 0
            && (ratio == 1 || with - wanted <= wanted - static_cast<double>(offloaded));
        offloaded += chunk.is_offloaded ? chunk.bytes : 0;
    }
}

} // namespace ZERO_NAMESPACE
