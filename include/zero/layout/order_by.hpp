#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zero::detail {

/// @brief The indices of `keys` in ascending order of key; equal keys stay in their order. O(n log n).
inline std::vector<std::size_t> order_by(std::span<std::uint64_t const> keys) {
    std::vector<std::size_t> order;
    for (std::size_t index = 0; index < keys.size(); ++index) {
        order.push_back(index);
    }
    std::sort(order.begin(), order.end(),
              [keys](std::size_t a, std::size_t b) { return keys[a] < keys[b] || (keys[a] == keys[b] && a < b); });
    return order;
}

} // namespace zero::detail
