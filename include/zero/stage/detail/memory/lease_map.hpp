#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/lease_plan.hpp"
#include "../../../layout/piece.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The memory that a bucket may claim. Each value includes the ones before it.
enum class LeaseChoice {
    own_place,    ///< its planned place
    spare_places, ///< the adjacent spare places that fit best: nothing else is planned there
    any_place     ///< the adjacent free memory that fits best, places of other buckets included
};

/// @brief Tracks which parts of a pool's memory are claimed by which bucket.
///
/// A member of `BucketPool`. The memory is cut into cells at every offset where a place begins or
/// ends, and a bucket claims adjacent cells. It depends on no element type and knows no queue.
class LeaseMap {
public:
    LeaseMap() = default;

    [[gnu::cold]] explicit LeaseMap(LeasePlan const& plan);

    /// @brief Claims memory for a bucket. A second call is a no-op. O(cells of its place) if that
    /// is free; otherwise O(cells).
    /// @return false if no free part is large enough; nothing was changed
    [[nodiscard]] bool claim(std::size_t bucket, LeaseChoice choice = LeaseChoice::any_place);

    /// @brief Returns whether an unclaimed bucket would find memory if no bucket before it held
    /// any. Complexity as for `claim`.
    [[nodiscard]] bool has_room_after_earlier(std::size_t bucket) const;

    /// @brief Ends the claim, if there is one.
    void free(std::size_t bucket);

    [[nodiscard]] bool is_claimed(std::size_t bucket) const noexcept {
        return _is_claimed[bucket] != 0;
    }

    /// @brief Returns the first element of a claimed bucket's memory.
    [[nodiscard]] std::size_t begin(std::size_t bucket) const noexcept {
        return _cell_begins[_cells_of[bucket].begin];
    }

    /// @brief Returns the first element of a bucket's planned place.
    [[nodiscard]] std::size_t planned_begin(std::size_t bucket) const noexcept {
        return _cell_begins[_planned[bucket].begin];
    }

    /// @brief Makes a claimed bucket the last user of its memory. Calls `visit(bucket)` for the
    /// last users before it; it may name one twice. If the bucket itself was elsewhere before, it
    /// is also named, so that its new last use comes after the old one.
    void use(std::size_t bucket, FunctionRef<std::size_t> visit);

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// Whether a cell is free once the claims of all buckets before `first` have ended.
    [[nodiscard]] bool is_cell_free(std::size_t cell, std::size_t first) const noexcept {
        return _holder[cell] == none || _holder[cell] < first;
    }
    [[nodiscard]] bool is_free(Range cells, std::size_t first) const;
    [[nodiscard]] Range best_fit(std::size_t elements, Range among, std::size_t first) const;
    [[nodiscard]] Range find(std::size_t bucket, LeaseChoice choice, std::size_t first) const;

    std::vector<std::size_t> _cell_begins; ///< ascending, and the end of the last
    std::vector<std::size_t> _holder;      ///< by cell: the bucket that claims it, or none
    std::vector<std::size_t> _last_user;   ///< by cell: a bucket, or none
    std::size_t _first_spare = 0;          ///< the cells from here on are spare
    List<Range> _planned;                  ///< by bucket: the cells of its place
    List<Range> _cells_of;                 ///< by bucket: the cells of its last claim
    std::vector<char> _is_claimed;         ///< by bucket
    std::vector<char> _is_moved;           ///< by bucket: claimed elsewhere since its last use
};

} // namespace ZERO_NAMESPACE::detail

/// The errors of `GradientScheduler` and `ParameterScheduler`.
namespace ZERO_NAMESPACE::detail {

/// @throws LateGradient: the reduction of the parameter's bucket was enqueued in this micro-step
[[noreturn, gnu::cold]] void throw_late_gradient(FlatLayout const& layout, std::size_t parameter,
                                                 std::size_t bucket, std::size_t rank);

/// @throws OutOfOrder: no gradient lease is free for a bucket of the unit
[[noreturn, gnu::cold]] void throw_no_gradient_lease(FlatLayout const& layout, std::size_t unit,
                                                     std::size_t rank);

/// @throws OutOfOrder: there is no room for the gathered buckets of the unit
[[noreturn, gnu::cold]] void throw_no_parameter_lease(FlatLayout const& layout, std::size_t unit,
                                                      std::size_t rank);

/// @throws OutOfOrder: there is no room for a bucket that the engine leases by itself. The
/// schedulers keep that room free, so this reports a bug of the library.
[[noreturn, gnu::cold]] void throw_no_room(FlatLayout const& layout, std::size_t bucket,
                                           std::size_t rank);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "lease_map.ipp"
#endif
