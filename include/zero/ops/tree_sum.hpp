#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/storage_types.hpp"

#include <cstddef>

/// @file
/// @brief The tree in which `TreeReduction` adds the gradients of the micro-batches of a step.
///
/// A step has V micro-batches, in V / b groups of b consecutive numbers. The node of number i,
/// k levels above the groups, is the sum of the groups i * 2^k to min((i + 1) * 2^k, V / b) - 1: of
/// its lower half and its upper half. Inside a group the same rule holds for the numbers.
/// Micro-step m of the rank at position p of W computes number m * W + p; the position is the rank,
/// except in levels. If W is admissible, the W numbers of a micro-step are a whole node, so each
/// rank adds what arrives as one subtree, and the sum of a step has the same bits for every
/// admissible W. In levels the same holds for the numbers of each inner group.

namespace ZERO_NAMESPACE::ops {

namespace detail {

/// @brief Returns the number of ones of a number.
ZERO_HOST_DEVICE constexpr std::size_t ones_of(std::size_t number) noexcept {
    std::size_t ones = 0;
    for (; number != 0; number &= number - 1) {
        ++ones;
    }
    return ones;
}

/// @brief Returns the number of ones below the lowest zero of a number.
ZERO_HOST_DEVICE constexpr std::size_t low_ones_of(std::size_t number) noexcept {
    std::size_t ones = 0;
    for (; (number & 1U) != 0; number >>= 1U) {
        ++ones;
    }
    return ones;
}

/// @brief Returns the logarithm of a number of at least 1, rounded down.
constexpr std::size_t log2_of(std::size_t number) noexcept {
    std::size_t log = 0;
    for (; number > 1; number >>= 1U) {
        ++log;
    }
    return log;
}

constexpr bool is_power_of_two(std::size_t number) noexcept {
    return number != 0 && (number & (number - 1)) == 0;
}

} // namespace detail

/// @brief Adds the leaves of a tree from left to right, as a binary counter: says to how many of
/// the sums that are held each leaf is added.
class TreeWalk {
public:
    /// @param leaves a multiple of `group`
    /// @param group leaves that are added by the same rule before the groups are
    ZERO_HOST_DEVICE constexpr TreeWalk(std::size_t leaves, std::size_t group) noexcept
        : TreeWalk(leaves, group, 0) {}

    /// @param next index of the leaf to begin with
    ZERO_HOST_DEVICE constexpr TreeWalk(std::size_t leaves, std::size_t group,
                                        std::size_t next) noexcept
        : _group(group), _groups(leaves / group), _leaf(next % group), _number(next / group) {}

    /// @brief Returns the number of sums that are held before the next leaf.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr std::size_t held() const noexcept {
        return detail::ones_of(_leaf) + detail::ones_of(_number);
    }

    /// @brief Returns to how many of them, the newest first, the next leaf is added. The sum is
    /// held in place of the oldest of these. Goes on to the leaf after it.
    ZERO_HOST_DEVICE constexpr std::size_t next() noexcept {
        if (_leaf + 1 != _group) {
            return detail::low_ones_of(_leaf++);
        }
        std::size_t const inside = detail::ones_of(_leaf);
        std::size_t const number = _number++;
        _leaf = 0;
        return inside
               + (_number == _groups ? detail::ones_of(number) : detail::low_ones_of(number));
    }

    /// @brief Returns the most sums that are held between two leaves: 0 for one leaf.
    [[nodiscard]] static constexpr std::size_t most_held(std::size_t leaves,
                                                         std::size_t group) noexcept {
        return detail::log2_of(group) + detail::log2_of(leaves / group);
    }

private:
    std::size_t _group = 1;
    std::size_t _groups = 1;
    std::size_t _leaf = 0;   ///< index in its group
    std::size_t _number = 0; ///< of the group
};

/// @brief The tree of a step, as a number of ranks sees it.
struct MicroBatchTree {
    std::size_t micro_batches = 1; ///< V, all of a step
    std::size_t group = 1;         ///< b, which divides V
    std::size_t world = 1;         ///< W

    /// @brief Returns whether there is such a tree: b divides V, which is not 0.
    [[nodiscard]] constexpr bool is_valid() const noexcept {
        return micro_batches != 0 && group != 0 && micro_batches % group == 0;
    }

    /// @brief Returns whether W ranks can add the tree: W divides V, and is b times a power of two,
    /// or a power of two that divides b.
    [[nodiscard]] constexpr bool is_admissible() const noexcept {
        return world != 0 && micro_batches % world == 0
               && (world % group == 0 ? detail::is_power_of_two(world / group)
                                      : detail::is_power_of_two(world) && group % world == 0);
    }

    /// @brief Returns the micro-steps of a step, V / W.
    [[nodiscard]] constexpr std::size_t micro_steps() const noexcept {
        return micro_batches / world;
    }

    /// @brief Returns the group of the leaves that a micro-step adds, one of each rank.
    [[nodiscard]] constexpr std::size_t rank_group() const noexcept {
        return world % group == 0 ? group : world;
    }

    /// @brief Returns the group of the micro-steps.
    [[nodiscard]] constexpr std::size_t step_group() const noexcept {
        return world % group == 0 ? 1 : group / world;
    }

    /// @brief Returns the most sums that a rank holds between two micro-steps.
    [[nodiscard]] constexpr std::size_t most_held() const noexcept {
        return TreeWalk::most_held(micro_steps(), step_group());
    }

    /// @brief Returns the tree as it is for a part of the ranks, which add their numbers first.
    [[nodiscard]] constexpr MicroBatchTree inside(std::size_t ranks) const noexcept {
        return {micro_batches, group, ranks};
    }

    /// @brief Returns the tree above the sums of `ranks` consecutive numbers, which are its
    /// micro-batches. If `inside(ranks)` is admissible, each of them is a whole node.
    [[nodiscard]] constexpr MicroBatchTree above(std::size_t ranks) const noexcept {
        return {micro_batches / ranks, group % ranks == 0 ? group / ranks : 1, world / ranks};
    }
};

/// @brief The sums to which a sum over ranks is added, the newest first.
struct HeldSums {
    float const* oldest = nullptr; ///< null: there is none
    float const* newer = nullptr;  ///< the second oldest; the others follow at a distance of
                                   ///< `stride`, up to the newest
    std::size_t stride = 0;        ///< in elements
    std::size_t count = 0;         ///< of all
    std::size_t rank_group = 1;    ///< `MicroBatchTree::rank_group`

    /// @brief Returns the sums from element `begin` on.
    [[nodiscard]] constexpr HeldSums from(std::size_t begin) const noexcept {
        return {count == 0 ? nullptr : oldest + begin, count < 2 ? nullptr : newer + begin, stride,
                count, rank_group};
    }

    /// @brief Returns the sum of a number, from the oldest, 0, on.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr float const* at(std::size_t number) const noexcept {
        return number == 0 ? oldest : newer + (number - 1) * stride;
    }
};

/// @brief The result of a reduce-scatter in a tree: the sum over the ranks, not rounded, plus sums
/// that were held, converted to `A` once.
template <StorageType A>
struct TreeSum {
    A* out;        ///< this rank's extent; may be the oldest held sum
    HeldSums held; ///< also of this rank's extent
};

} // namespace ZERO_NAMESPACE::ops
