#pragma once

#include "placed_offsets.hpp"

#include "../../layout/shard_map.hpp"

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

} // namespace ZERO_NAMESPACE::detail
