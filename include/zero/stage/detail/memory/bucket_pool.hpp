#pragma once

/// @file
/// @brief Leases the memory that buckets in flight share. `layout/lease_plan.hpp` decides how much
/// memory that is and where each bucket is; a pool decides who has it now.

#include "../../../backend/fence.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/lease_plan.hpp"
#include "../../../layout/piece.hpp"

#include <cstddef>
#include <span>
#include <utility>
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

// The errors of `GradientScheduler` and `ParameterScheduler`.

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

/// @brief Owns the memory that buckets in flight share, as a `LeasePlan` lays it out, and leases it
/// to them.
///
/// The host may reuse the memory of a closed lease at once: the next `open` makes its queue wait
/// for the last use of that memory. So the host never waits, and no bucket gets the memory of
/// another too early.
template <class T, class Backend>
class BucketPool {
public:
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    BucketPool() = default;

    [[gnu::cold]] BucketPool(LeasePlan const& plan, MemoryResource& memory, BufferKind kind)
        : _buffer(memory, plan.elements, kind), _map(plan), _last_use(plan.places.size()),
          _is_open(plan.places.size(), false) {}

    /// @brief Fills all leases, before the first is opened. Waits.
    [[gnu::cold]] void fill(Queue queue, T value) {
        Backend::fill(queue, _buffer.data(), _buffer.size(), value);
        Backend::synchronise(Backend::record(queue)); // any queue may open a lease next
    }

    /// @brief Reserves memory for a bucket, without waiting for its last use. A second call is a
    /// no-op. @return false if there is no room; nothing was changed
    [[nodiscard]] bool claim(std::size_t bucket, LeaseChoice choice = LeaseChoice::any_place) {
        return _map.claim(bucket, choice);
    }

    /// @brief Returns whether an unclaimed bucket would find room if no bucket before it held any.
    [[nodiscard]] bool has_room_after_earlier(std::size_t bucket) const {
        return _map.has_room_after_earlier(bucket);
    }

    /// @brief Gives up what `claim` reserved, if anything.
    void unclaim(std::size_t bucket) { _map.free(bucket); }

    [[nodiscard]] bool is_claimed(std::size_t bucket) const noexcept {
        return _map.is_claimed(bucket);
    }
    [[nodiscard]] bool is_open(std::size_t bucket) const noexcept { return _is_open[bucket] != 0; }

    /// @brief The memory of an open bucket.
    [[nodiscard]] T* at(std::size_t bucket) const noexcept {
        return _buffer.data() + _map.begin(bucket);
    }

    /// @brief The planned place of a bucket, claimed or not.
    [[nodiscard]] T* place(std::size_t bucket) const noexcept {
        return _buffer.data() + _map.planned_begin(bucket);
    }

    /// @brief Leases the claimed memory of a bucket to commands on `writer`, after its last use.
    T* open(std::size_t bucket, Queue writer, Fence fence) {
        _map.use(bucket, [&](std::size_t user) { Backend::wait(writer, _last_use[user], fence); });
        _is_open[bucket] = true;
        return at(bucket);
    }

    /// @brief Ends the lease; its memory is reused after `last_use`.
    void close(std::size_t bucket, Event last_use) {
        _last_use[bucket] = std::move(last_use);
        _is_open[bucket] = false;
        _map.free(bucket);
    }

    /// @brief Keeps the memory of every closed lease until a later event, which must follow their
    /// last uses.
    void extend_last_uses(Event const& event) {
        for (Event& last_use : _last_use) {
            last_use = event;
        }
    }

    /// @brief Drops the events of all leases. Every last use must already be ordered before all
    /// later commands.
    void forget_events() noexcept {
        for (Event& last_use : _last_use) {
            last_use = {};
        }
    }

    /// @brief Makes `queue` wait for the last use of every lease.
    void wait_for_last_uses(Queue queue, Fence fence) const {
        for (Event const& last_use : _last_use) {
            Backend::wait(queue, last_use, fence);
        }
    }

private:
    Buffer<T> _buffer;
    LeaseMap _map;
    List<Event> _last_use;      ///< by bucket: the end of its last lease
    std::vector<char> _is_open; ///< by bucket
};

/// @brief Gives up the claims of `claim_leases`.
template <class Stores>
void unclaim_leases(Stores& stores, std::vector<std::size_t>& claimed) {
    for (std::size_t const bucket : claimed) {
        stores.of_bucket(bucket, [&](auto& store) { store.unclaim(bucket); });
    }
    claimed.clear();
}

/// @brief Claims memory for every bucket that is wanted, or for none. For the schedulers, whose
/// calls find all their leases before they change anything. No bucket takes another's place before
/// all have tried their own.
/// @param stores a `StoresByType` of stores with `claim` and `unclaim`
/// @param choice the memory that they may claim
/// @param claimed the buckets that were claimed by this call; its capacity must suffice
/// @return false if there is no room for one of them
template <class Stores, class Wanted>
[[nodiscard]] bool claim_leases(Stores& stores, std::span<std::size_t const> buckets,
                                Wanted const& is_wanted, LeaseChoice choice,
                                std::vector<std::size_t>& claimed) {
    claimed.clear();
    bool is_met = false;
    for (int tried = 0; !is_met && tried <= static_cast<int>(choice); ++tried) {
        is_met = true;
        for (std::size_t const bucket : buckets) {
            if (!is_wanted(bucket)) {
                continue;
            }
            if (stores.of_bucket(bucket, [&](auto& store) {
                    return store.claim(bucket, static_cast<LeaseChoice>(tried));
                })) {
                claimed.push_back(bucket);
            } else {
                is_met = false;
            }
        }
    }
    if (!is_met) {
        unclaim_leases(stores, claimed);
    }
    return is_met;
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "bucket_pool.ipp"
#endif
