#pragma once

#include <cstddef>
#include <vector>

// The tree of micro-batches as it is defined, added straight-line.

namespace zero::test {

/// Adds the leaves [begin, end): halves at the largest power of two below their number.
inline float tree_node(std::vector<float> const& leaves, std::size_t begin, std::size_t end) {
    if (end - begin == 1) {
        return leaves[begin];
    }
    std::size_t left = 1;
    while (2 * left < end - begin) {
        left *= 2;
    }
    return tree_node(leaves, begin, begin + left) + tree_node(leaves, begin + left, end);
}

/// Adds groups of consecutive leaves, then the groups.
inline float tree_root(std::vector<float> const& leaves, std::size_t group) {
    std::vector<float> groups;
    for (std::size_t begin = 0; begin < leaves.size(); begin += group) {
        groups.push_back(tree_node(leaves, begin, begin + group));
    }
    return tree_node(groups, 0, groups.size());
}

} // namespace zero::test
