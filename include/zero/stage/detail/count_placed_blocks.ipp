#pragma once

#include "count_placed_blocks.hpp"

#include "../../layout/detail/count_blocks.hpp"

namespace ZERO_NAMESPACE::detail {

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
