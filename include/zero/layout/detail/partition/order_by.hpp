#pragma once

#include "../../../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the indices of `keys` in ascending order of key. Stable; O(n log n).
///
/// A merge sort, written out because `<algorithm>` takes longer to compile than this whole layer.
[[gnu::cold]] inline std::vector<std::size_t> order_by(std::span<std::uint64_t const> keys) {
    std::size_t const count = keys.size();
    std::vector<std::size_t> order(count);
    for (std::size_t index = 0; index < count; ++index) {
        order[index] = index;
    }
    std::vector<std::size_t> merged(count);
    for (std::size_t sorted = 1; sorted < count; sorted *= 2) {
        for (std::size_t begin = 0; begin < count; begin += 2 * sorted) {
            std::size_t const middle = count - begin < sorted ? count : begin + sorted;
            std::size_t const end = count - begin < 2 * sorted ? count : begin + 2 * sorted;
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

/// @brief Returns the values in ascending order of the number that `key` gives each. Stable.
template <class T, class Key>
[[nodiscard]] std::vector<T> sorted_by(std::span<T const> values, Key const& key) {
    std::vector<std::uint64_t> keys;
    for (T const& value : values) {
        keys.push_back(key(value));
    }
    std::vector<T> sorted;
    for (std::size_t const index : order_by(keys)) {
        sorted.push_back(values[index]);
    }
    return sorted;
}

} // namespace ZERO_NAMESPACE::detail
