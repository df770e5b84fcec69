#pragma once

#include "../../backend/fence.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns a fixed number of leases of equal size for buckets in flight.
///
/// The host may reuse a closed lease at once: the next `open` makes its queue wait for the event of
/// the last use. So the host never waits, and no bucket gets the memory of another too early.
template <class T, class Backend>
class BucketPool {
public:
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    BucketPool() = default;

    [[gnu::cold]] BucketPool(std::size_t leases, std::size_t lease_elements, std::size_t buckets,
                             MemoryResource& memory, BufferKind kind)
        : _buffer(memory, leases * lease_elements, kind), _lease_elements(lease_elements),
          _leases(leases), _lease_of(buckets, none), _free(leases) {}

    /// @brief Fills all leases. Commands on a lease that is opened later run after it.
    [[gnu::cold]] void fill(Queue queue, T value) {
        Backend::fill(queue, _buffer.data(), _buffer.size(), value);
        for (Lease& lease : _leases) {
            lease.last_use = Backend::record(queue);
        }
    }

    [[nodiscard]] std::size_t free_leases() const noexcept { return _free; }
    [[nodiscard]] std::size_t lease_elements() const noexcept { return _lease_elements; }
    [[nodiscard]] bool is_open(std::size_t bucket) const noexcept {
        return _lease_of[bucket] != none;
    }

    /// @brief The memory of an open bucket.
    [[nodiscard]] T* at(std::size_t bucket) const noexcept {
        return _buffer.data() + _lease_of[bucket] * _lease_elements;
    }

    /// @brief Leases memory to a bucket, for commands on `writer`. Takes the free lease that was
    /// closed first; there must be one.
    T* open(std::size_t bucket, Queue writer, Fence fence) {
        std::size_t chosen = none;
        for (std::size_t lease = 0; lease < _leases.size(); ++lease) {
            if (!_leases[lease].is_open
                && (chosen == none || _leases[lease].closed < _leases[chosen].closed)) {
                chosen = lease;
            }
        }
        Backend::wait(writer, _leases[chosen].last_use, fence);
        _leases[chosen].is_open = true;
        _lease_of[bucket] = chosen;
        --_free;
        return at(bucket);
    }

    /// @brief Ends the lease; its memory is reused after `last_use`.
    void close(std::size_t bucket, Event last_use) {
        Lease& lease = _leases[_lease_of[bucket]];
        lease.last_use = std::move(last_use);
        lease.is_open = false;
        lease.closed = ++_closed;
        _lease_of[bucket] = none;
        ++_free;
    }

    /// @brief Drops the events of all leases. Every last use must already be ordered before all
    /// later commands.
    void forget_events() noexcept {
        for (Lease& lease : _leases) {
            lease.last_use = {};
        }
    }

    /// @brief Makes `queue` wait for the last use of every lease.
    void wait_for_last_uses(Queue queue, Fence fence) const {
        for (Lease const& lease : _leases) {
            Backend::wait(queue, lease.last_use, fence);
        }
    }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    struct Lease {
        Event last_use{};
        std::uint64_t closed = 0;
        bool is_open = false;
    };

    Buffer<T> _buffer;
    std::size_t _lease_elements = 0;
    List<Lease> _leases;
    std::vector<std::size_t> _lease_of;
    std::size_t _free = 0;
    std::uint64_t _closed = 0;
};

} // namespace ZERO_NAMESPACE::detail
