#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../flat_layout.hpp"
#include "../../gather_options.hpp"
#include "../../piece.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {
struct LeasePlan; // lease_plan.ipp includes this header
} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief Applies `GatherOptions` to an order of acquisitions: which units are gathered in advance
/// at each position, and which buckets stay gathered after it.
///
/// Lease plans, traffic formulas and the engine use it, so the three agree. The layout and the
/// options must outlive it.
class GatherOrder {
public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    GatherOrder(FlatLayout const& layout, GatherOptions const& options)
        : _layout(&layout), _options(&options) {}

    /// @brief Replaces the order. O(positions times their buckets, and times the units in between
    /// if a limited number of units is kept).
    [[gnu::cold]] void assign(std::span<std::size_t const> units);

    [[nodiscard]] std::size_t size() const noexcept { return _units.size(); }
    [[nodiscard]] std::size_t unit(std::size_t position) const noexcept { return _units[position]; }

    /// @brief Returns the end of the positions that are gathered while the unit at `position` is in
    /// use; at least `position` + 1.
    [[nodiscard]] std::size_t prefetch_end(std::size_t position) const noexcept {
        return _prefetch_end[position];
    }

    /// @brief Returns the position until which the bucket number `index` of the unit at `position`
    /// stays gathered because it is used there again; `none` if it is released.
    [[nodiscard]] std::size_t kept_until(std::size_t position, std::size_t index) const noexcept {
        return _kept_until[_first[position] + index];
    }

private:
    [[nodiscard]] std::size_t elements_between(std::size_t position, std::size_t other) const;
    [[nodiscard]] bool is_kept(std::size_t position, std::size_t again);
    void find_prefetch_ends();
    void find_kept();

    FlatLayout const* _layout;
    GatherOptions const* _options;
    std::vector<std::size_t> _units;
    std::vector<std::size_t> _sums;         ///< elements of the units before each position
    std::vector<std::size_t> _prefetch_end; ///< by position
    std::vector<std::size_t> _first;        ///< by position: its first entry in `_kept_until`
    std::vector<std::size_t> _kept_until;   ///< by position and bucket
    std::vector<std::size_t> _next;         ///< by bucket: its next use, while tables are made
    std::vector<std::size_t> _seen;         ///< by unit: the last search that counted it
    std::size_t _searches = 0;
};

/// @brief Returns the elements of a unit that its acquisition may gather: without its persistent
/// parameters.
[[nodiscard]] std::size_t gathered_elements(FlatLayout const& layout, std::size_t unit);

/// @brief Returns the number of times that a step gathers each bucket. A bucket that stays gathered
/// from an earlier acquisition is not gathered again. O(acquired units times their buckets).
/// @param acquired_units the units acquired during the step, once per acquisition
[[nodiscard]] std::vector<std::size_t> count_gathers(FlatLayout const& layout,
                                                     std::size_t micro_steps,
                                                     std::span<std::size_t const> acquired_units,
                                                     GatherOptions const& gather);

/// @brief Returns the units that have parameters, in the order for which memory is planned: the
/// forward pass by number, then the backward pass in the unit order of the layout. Numbers that no
/// parameter names do not separate their neighbours.
std::vector<std::size_t> used_units(FlatLayout const& layout);

/// @brief Plans the gathered buckets of one type under options other than the defaults.
///
/// The order is a forward pass by unit number and a backward pass in the unit order of the layout.
/// A unit is in flight while it is in use, while the unit before it is (two may be held at once),
/// while it is gathered in advance, and while it is kept. Under `max_live_elements` a unit is in
/// flight for its use alone, and longer only where the limit leaves room.
/// @throws InvalidArgument if the limit does not hold every unit
LeasePlan plan_gathered(FlatLayout const& layout, GatherOptions const& gather, std::size_t spares,
                        std::size_t type);

/// @brief Gives buckets places in one buffer, so that buckets with a common step do not overlap.
///
/// Buckets with equal lifetimes are placed as one block. Blocks are placed twice, in the order of
/// size and in that of duration, largest first, each at the lowest offset that is free during its
/// lifetime; the smaller buffer wins. (Greedy by size is usual in planners of tensor memory:
/// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020.)
/// @param lifetimes by bucket: ascending, disjoint ranges of steps below `steps`; empty if the
/// bucket needs no place
/// @param spares number of spare places to append
/// @param further by bucket: elements of its place after its own; empty: none
LeasePlan place_leases(FlatLayout const& layout, List<List<Range>> const& lifetimes,
                       std::size_t steps, std::size_t spares,
                       std::span<std::size_t const> further = {});

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "gather_order.ipp"
#include "place_leases.ipp"
#endif
