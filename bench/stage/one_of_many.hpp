#pragma once

#include <zero/comm/communicator.hpp>
#include <zero/core/detail/throw_error.hpp>
#include <zero/host/host_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Rank 0 of W with simulated peers, which would all do the same. The collectives do this rank's
/// part, with as many bytes as on the real transport: a sum reads W extents (its own buffer stands
/// in for those of the peers) and a gather writes all of them. For measurements only: the results
/// are meaningless.
namespace bench {

class OneOfMany {
public:
    using policy_category = zero::CommunicatorCategory;
    using Backend = zero::HostBackend;
    using Queue = Backend::Queue;
    using Cuts = std::span<std::size_t const>;
    static constexpr std::size_t most_in_flight = 256; ///< largest number of collectives in flight

    explicit OneOfMany(std::size_t world)
        : _world(world), _peers(most_in_flight * world), _done(most_in_flight) {}

    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(_world); }

    /// All extents must have one size, as with the contiguous partitioner.
    template <class T>
    void reduce_scatter(T const* send, T* receive, Cuts cuts, Queue queue,
                        zero::CollectiveTag = {}) {
        std::size_t const flight = _collectives++ % most_in_flight;
        Backend::synchronise(_done[flight]);
        void const** const peers = _peers.data() + flight * _world;
        for (std::size_t peer = 0; peer < _world; ++peer) {
            if (cuts[peer + 1] - cuts[peer] != cuts[1]) {
                zero::detail::throw_error<zero::InvalidArgument>(
                    {"bench: uneven cuts are not simulated."});
            }
            peers[peer] = send + cuts[peer];
        }
        int const world = size();
        std::size_t const elements = cuts[1];
        queue->enqueue([=] {
            zero::host::sum_ranks(receive, reinterpret_cast<T const* const*>(peers), world,
                                  elements);
        });
        _done[flight] = Backend::record(queue);
    }

    template <class T>
    void all_gather(T const* send, T* receive, Cuts cuts, Queue queue, zero::CollectiveTag = {}) {
        for (std::size_t peer = 0; peer < _world; ++peer) {
            Backend::copy_bytes(queue, receive + cuts[peer], send, cuts[1] * sizeof(T));
        }
    }

    template <class T>
    void all_reduce(T const* send, T* receive, Cuts cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        reduce_scatter(send, receive, cuts, queue, tag);
        all_gather(static_cast<T const*>(receive), receive, cuts, queue, tag);
    }

    template <class T>
    void broadcast(T*, std::size_t, int, Queue, zero::CollectiveTag = {}) {
    } // this rank is the root

    void all_reduce_integers(std::int64_t* values, std::size_t elements,
                             zero::IntegerReduction reduction, Queue queue,
                             zero::CollectiveTag = {}) {
        auto const factor =
            reduction == zero::IntegerReduction::sum ? static_cast<std::int64_t>(_world) : 1;
        queue->enqueue([=] {
            for (std::size_t i = 0; i < elements; ++i) {
                values[i] *= factor;
            }
        });
    }

    void abort(std::string_view, bool = false) noexcept {}

private:
    std::size_t _world;
    std::vector<void const*> _peers;
    std::vector<Backend::Event> _done;
    std::size_t _collectives = 0;
};
static_assert(zero::Communicator<OneOfMany>);

} // namespace bench
