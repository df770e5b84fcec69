#pragma once

#include "../../core/detail/light_std.hpp"
#include "../dealt_group_partitioner.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE std::vector<std::size_t>
DealtGroupPartitioner::order(std::span<std::size_t const> elements, std::size_t world) {
    std::vector<std::size_t> dealt;
    for (std::size_t list = 0; list < detail::smaller(world, elements.size()); ++list) {
        for (std::size_t index = list; index < elements.size(); index += world) {
            dealt.push_back(index);
        }
    }
    return dealt;
}

} // namespace ZERO_NAMESPACE
