#pragma once

#include "../../core/detail/namespace.hpp"
#include "../flat_layout.hpp"
#include "../gather_options.hpp"

#include <cstddef>
#include <span>
#include <vector>

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

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "gather_order.ipp"
#endif
