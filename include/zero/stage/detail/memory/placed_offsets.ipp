#pragma once

#include "../../../layout/detail/count_blocks.hpp"
#include "../../../layout/shard_map.hpp"
#include "placed_buffer.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE PlacedOffsets::PlacedOffsets(FlatLayout const& layout, std::size_t buckets,
                                              std::size_t type, std::size_t rank,
                                              Placement placement) {
    bool const is_sharded = placement == Placement::sharded;
    std::vector<std::size_t> const begins =
        is_sharded ? shard_begins(layout, rank, type) : replica_begins(layout, type);
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
        _first.push_back(is_sharded ? layout.extent(bucket, rank).begin : 0);
        _storage_begin.push_back(begins[bucket]);
    }
    _storage_begin.push_back(begins[buckets]);
}

ZERO_COLD_INLINE std::size_t count_placed_blocks(FlatLayout const& layout, std::size_t type,
                                                 std::size_t rank, Placement placement) {
    std::size_t blocks = 0;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        blocks +=
            layout.bucket(bucket).type == type ? count_blocks(layout, bucket, rank, placement) : 0;
    }
    return blocks;
}

} // namespace ZERO_NAMESPACE::detail
