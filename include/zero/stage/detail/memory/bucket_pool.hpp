#pragma once

#include "../../../backend/fence.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/lease_plan.hpp"
#include "lease_map.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

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

} // namespace ZERO_NAMESPACE::detail
