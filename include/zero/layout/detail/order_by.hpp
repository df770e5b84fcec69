#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The indices of `keys` in ascending order of key; equal keys stay in their order. O(n log
/// n).
///
/// By merging, from runs of one to one run. Written out, because the header of the standard's
/// algorithms costs every unit more than this layer.
inline std::vector<std::size_t> order_by(std::span<std::uint64_t const> keys) {
    std::size_t const count = keys.size();
    std::vector<std::size_t> order(count);
    for (std::size_t index = 0; index < count; ++index) {
        order[index] = index;
    }
    std::vector<std::size_t> merged(count);
    for (std::size_t run = 1; run < count; run *= 2) {
        for (std::size_t begin = 0; begin < count; begin += 2 * run) {
            std::size_t const middle = count - begin < run ? count : begin + run;
            std::size_t const end = count - begin < 2 * run ? count : begin + 2 * run;
            std::size_t left = begin;
            std::size_t right = middle;
            for (std::size_t out = begin; out < end; ++out) {
                bool const takes_left =
                    right == end || (left < middle && keys[order[left]] <= keys[order[right]]);
                merged[out] = order[takes_left ? left++ : right++];
            }
        }
        order.swap(merged);
    }
    return order;
}

} // namespace ZERO_NAMESPACE::detail
