#pragma once

#include "../../chunk_places.hpp"

#include "../../../core/detail/light_std.hpp"
#include "../../padding.hpp"
#include "count_blocks.hpp"

#include <algorithm>

namespace ZERO_NAMESPACE {

namespace detail {

/// The index of the parameters in `ChunkArrays::kinds`, which are part 1 of a chunk.
inline constexpr std::size_t parameter_arrays = 2;

} // namespace detail

ZERO_COLD_INLINE void ChunkPlaces::start(std::span<ChunkArrays const> arrays,
                                         std::vector<std::vector<ChunkArray>>& all,
                                         std::vector<std::vector<ChunkArray>>& frozen) {
    _arrays.assign(arrays.begin(), arrays.end());
    for (ChunkArrays const& type : _arrays) {
        auto& list = all.emplace_back();
        for (auto const& kind : type.of) {
            list.insert(list.end(), kind.begin(), kind.end());
        }
        frozen.push_back(type.of[detail::parameter_arrays]);
        _has_parameters = _has_parameters || !frozen.back().empty();
    }
    if (!_has_parameters) {
        frozen.clear();
    }
}

/// Numbers the chunks that are offloaded, chooses those whose parameters stay, and counts for each
/// slice the blocks of its chunk that lie before it.
ZERO_COLD_INLINE void ChunkPlaces::number_chunks(FlatLayout const& layout,
                                                 std::uint64_t resident_bytes) {
    std::uint64_t kept = 0;
    for (std::size_t chunk = 0; chunk < _plan.chunks().size(); ++chunk) {
        auto const& own = _plan.chunks()[chunk];
        _of_chunk.push_back(
            {_chunks.size(), layout.bucket(own.bucket).type, kept < resident_bytes, {}});
        kept += kind_bytes(chunk, detail::parameter_arrays);
        if (own.is_offloaded) {
            _chunks.push_back(chunk);
            _updated_numbers += chunk < _plan.updated_chunks() ? 1 : 0;
        }
        std::size_t blocks = 0;
        for (Piece const& slice : _plan.slices(own)) {
            _chunk_of.push_back(chunk);
            _blocks.push_back(blocks);
            blocks += detail::blocks_of(slice.elements);
        }
    }
}

ZERO_COLD_INLINE std::uint64_t ChunkPlaces::kind_bytes(std::size_t chunk,
                                                       std::size_t kind) const noexcept {
    auto const& own = _plan.chunks()[chunk];
    std::uint64_t bytes = 0;
    if (chunk < _plan.updated_chunks() || kind == detail::parameter_arrays) {
        for (ChunkArray const& array : _arrays[_of_chunk[chunk].type].of[kind]) {
            bytes += ChunkPlan::array_bytes(array, _plan.slices(own));
        }
    }
    return bytes;
}

ZERO_COLD_INLINE bool ChunkPlaces::is_staged(std::size_t chunk, std::size_t kind) const noexcept {
    return kind == detail::parameter_arrays ? has_offloaded_parameters(chunk)
                                            : _plan.chunks()[chunk].is_offloaded;
}

ZERO_COLD_INLINE bool ChunkPlaces::is_in_file(BufferKind kind) const noexcept {
    bool is_any = false;
    for (std::size_t index = 0; index < ChunkArrays::kinds.size(); ++index) {
        for (std::size_t const chunk : _chunks) {
            is_any = is_any
                     || (ChunkArrays::kinds[index] == kind && is_staged(chunk, index)
                         && kind_bytes(chunk, index) != 0);
        }
    }
    return is_any;
}

ZERO_COLD_INLINE std::vector<std::uint64_t> ChunkPlaces::requests() const {
    std::vector<std::uint64_t> sizes(parts() * numbers());
    for (std::size_t number = 0; number < numbers(); ++number) {
        for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
            std::uint64_t const bytes = kind_bytes(_chunks[number], kind);
            if (bytes != 0 && is_staged(_chunks[number], kind)) {
                sizes[request(number, kind == detail::parameter_arrays ? 1 : 0)] += bytes;
            }
        }
    }
    return sizes;
}

ZERO_COLD_INLINE void ChunkPlaces::lay_out(std::span<std::size_t const> staging_bytes,
                                           std::size_t alignment, std::size_t depth) {
    _staging_bytes.assign(staging_bytes.begin(), staging_bytes.end());
    _alignment = detail::larger<std::size_t>(alignment, ChunkPlan::array_alignment);
    _slots = detail::smaller(depth, numbers());
    for (std::size_t number = 0; number < numbers(); ++number) {
        std::size_t const last = parts() - 1;
        _slot_bytes =
            detail::larger(_slot_bytes, part_begin(number, last) + part_bytes(number, last));
        if (_has_parameters) {
            _gather_slot_bytes = detail::larger(_gather_slot_bytes, part_bytes(number, 1));
        }
    }
    _slot_bytes = round_up(_slot_bytes, _alignment);
    _gather_slot_bytes = round_up(_gather_slot_bytes, _alignment);
    std::array<std::size_t, ChunkArrays::kinds.size()> resident{};
    for (std::size_t chunk = 0; chunk < _of_chunk.size(); ++chunk) {
        auto const& own = _plan.chunks()[chunk];
        OfChunk& to = _of_chunk[chunk];
        std::size_t staged = own.is_offloaded ? slot_begin(to.number) : 0;
        for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
            auto const bytes = static_cast<std::size_t>(kind_bytes(chunk, kind));
            if (is_staged(chunk, kind)) {
                to.begin[kind] = kind == detail::parameter_arrays && _has_parameters
                                     ? slot_begin(to.number) + part_begin(to.number, 1)
                                     : std::exchange(staged, staged + bytes);
                continue;
            }
            to.begin[kind] = std::exchange(resident[kind], resident[kind] + bytes);
            for (std::size_t array = 0; bytes != 0 && array < _arrays[to.type].of[kind].size();
                 ++array) {
                ChunkArray const& form = _arrays[to.type].of[kind][array];
                for (Piece const& slice : _plan.slices(own)) {
                    _resident[kind].content_bytes +=
                        slice.elements * form.element_bytes
                        + detail::blocks_of(slice.elements) * form.block_bytes;
                }
            }
        }
    }
    for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
        _resident[kind].padding_bytes = resident[kind] - _resident[kind].content_bytes;
    }
}

ZERO_COLD_INLINE std::size_t ChunkPlaces::staging_bytes() const noexcept {
    std::size_t const spare = _alignment - ChunkPlan::array_alignment; // all memory has 128
    return _slots == 0 ? 0 : gather_slot_begin(gather_slots()) + spare;
}

ZERO_COLD_INLINE auto ChunkPlaces::place(std::size_t bucket, std::size_t index, BufferKind kind,
                                         std::size_t array) const -> Place {
    auto const slices = _plan.slices();
    auto const chunks = _plan.chunks();
    auto const* const begin = slices.data() + chunks[_plan.first_chunk(bucket)].first_slice;
    auto const& last = chunks[_plan.end_chunk(bucket) - 1];
    auto const* const found = std::lower_bound(
        begin, slices.data() + last.first_slice + last.slices, index,
        [](Piece const& piece, std::size_t at) { return piece.bucket_begin < at; });
    auto const slice = static_cast<std::size_t>(found - slices.data());
    std::size_t const chunk = _chunk_of[slice];
    auto const own = _plan.slices(chunks[chunk]);
    OfChunk const& of = _of_chunk[chunk];
    std::size_t own_kind = 0;
    while (ChunkArrays::kinds[own_kind] != kind) {
        ++own_kind;
    }
    auto const& arrays = _arrays[of.type].of[own_kind];
    std::size_t offset = of.begin[own_kind];
    for (std::size_t before = 0; before < array; ++before) {
        offset += static_cast<std::size_t>(ChunkPlan::array_bytes(arrays[before], own));
    }
    offset += _blocks[slice]
              * (arrays[array].element_bytes * detail::block_elements + arrays[array].block_bytes);
    return {own_kind, is_staged(chunk, own_kind), offset};
}

ZERO_COLD_INLINE void ChunkPlaces::add_to(MemoryPlan& plan) const {
    for (std::size_t kind = 0; kind < ChunkArrays::kinds.size(); ++kind) {
        for (ChunkArrays const& type : _arrays) {
            if (!type.of[kind].empty()) {
                plan[ChunkArrays::kinds[kind]] = _resident[kind];
            }
        }
    }
    plan[BufferKind::staging].content_bytes = staging_bytes();
    plan.tier_bytes = 0;
    for (std::size_t const bytes : _staging_bytes) {
        plan.tier_bytes += bytes;
    }
}

} // namespace ZERO_NAMESPACE
