#pragma once

#include "../shard_begins.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::vector<std::size_t> shard_begins(FlatLayout const& layout, std::size_t rank,
                                                       std::size_t type) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(
            begins.back()
            + (layout.bucket(bucket).type == type ? layout.extent(bucket, rank).size() : 0));
    }
    return begins;
}

ZERO_COLD_INLINE std::vector<std::size_t> replica_begins(FlatLayout const& layout,
                                                         std::size_t type) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(begins.back()
                         + (layout.bucket(bucket).type == type ? layout.elements(bucket) : 0));
    }
    return begins;
}

} // namespace ZERO_NAMESPACE
