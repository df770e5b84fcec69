#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/lease_plan.hpp"
#include "../../layout/range.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Tracks which parts of a pool's memory are claimed by which bucket.
///
/// A member of `BucketPool`. The memory is cut into cells at every offset where a place begins or
/// ends. A bucket claims the cells of its own place; if these are taken, the free adjacent cells
/// that fit best. It depends on no element type and knows no queue.
class LeaseMap {
public:
    LeaseMap() = default;

    [[gnu::cold]] explicit LeaseMap(LeasePlan const& plan);

    /// @brief Claims memory for a bucket. A second call is a no-op. O(cells of the place), if the
    /// place is free; otherwise O(cells).
    /// @return false if no free part is large enough; nothing was changed
    [[nodiscard]] bool claim(std::size_t bucket);

    /// @brief Ends the claim, if there is one.
    void free(std::size_t bucket);

    [[nodiscard]] bool is_claimed(std::size_t bucket) const noexcept {
        return _is_claimed[bucket] != 0;
    }

    /// @brief Returns the first element of a claimed bucket's memory.
    [[nodiscard]] std::size_t begin(std::size_t bucket) const noexcept {
        return _cell_begins[_cells_of[bucket].begin];
    }

    /// @brief Makes a claimed bucket the last user of its memory. Calls `visit(bucket)` for the
    /// last users before it, itself included; it may name one twice.
    void use(std::size_t bucket, FunctionRef<std::size_t> visit);

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    [[nodiscard]] bool is_free(Range cells) const;
    [[nodiscard]] Range best_fit(std::size_t elements) const;
    void set_taken(Range cells, bool is_taken);

    std::vector<std::size_t> _cell_begins; ///< ascending, and the end of the last
    std::vector<char> _is_taken;           ///< by cell
    std::vector<std::size_t> _last_user;   ///< by cell: a bucket, or none
    List<Range> _planned;                  ///< by bucket: the cells of its place
    List<Range> _cells_of;                 ///< by bucket: the cells that it claims
    std::vector<char> _is_claimed;         ///< by bucket
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "lease_map.ipp"
#endif
