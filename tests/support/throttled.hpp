#pragma once

// Groups of ranks on hosts whose links have a limited bandwidth, for tests and benchmarks.

#include <zero/comm/detail/decorator.hpp>
#include <zero/comm/traffic_count.hpp>
#include <zero/layout/communication_model.hpp>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

namespace zero::test {

/// The two links by which a rank reads from others, and how long they were in use. Each rank has
/// its own; it is shared by all communicators of the rank and used by one thread.
struct Links {
    NetworkLevel inside;  ///< to ranks of the same host
    NetworkLevel between; ///< to other hosts, for one rank
    bool sleeps = false;  ///< for benchmarks: a collective takes as long as it keeps the links busy

    double seconds_inside = 0; ///< virtual: nothing waits for them unless `sleeps`
    double seconds_between = 0;

    [[nodiscard]] double seconds() const noexcept { return seconds_inside + seconds_between; }
    void reset() noexcept { seconds_inside = seconds_between = 0; }
};

/// A communicator whose collectives keep the links of its rank busy, one after the other: each rank
/// reads directly from each other one. For queues that run commands at once.
template <class C>
class Throttled : public detail::CommunicatorDecorator<Throttled<C>, C> {
    using Base = detail::CommunicatorDecorator<Throttled, C>;
    friend Base;

public:
    using Queue = typename Base::Queue;

    /// @param hosts the number of the host of each rank of `inner`
    Throttled(C& inner, Links& links, std::vector<std::size_t> hosts)
        : Base(inner), _links(&links), _hosts(std::move(hosts)) {}

private:
    template <class T, class Forward>
    void around(detail::DecoratedCall const& call, Queue /*queue*/, Forward const& forward) {
        forward();
        double const before = _links->seconds();
        auto const own = static_cast<std::size_t>(this->rank());
        auto const extent = [&](std::size_t rank) {
            return (call.cuts[rank + 1] - call.cuts[rank]) * sizeof(T);
        };
        if (call.kind == CollectiveKind::integers) { // by recursive doubling
            for (std::size_t bit = 1; bit < _hosts.size(); bit *= 2) {
                if ((own ^ bit) < _hosts.size()) {
                    read_from(own ^ bit, call.count * sizeof(T));
                }
            }
        } else if (call.kind == CollectiveKind::broadcast) {
            if (call.detail != own) {
                read_from(static_cast<std::size_t>(call.detail), call.count * sizeof(T));
            }
        } else {
            for (std::size_t peer = 0; peer < _hosts.size(); ++peer) {
                if (peer != own && call.kind != CollectiveKind::all_gather) {
                    read_from(peer, extent(own)); // to be added or kept
                }
                if (peer != own
                    && (call.kind == CollectiveKind::all_gather
                        || call.kind == CollectiveKind::all_reduce)) {
                    read_from(peer, extent(peer));
                }
            }
        }
        if (_links->sleeps) {
            std::this_thread::sleep_for(std::chrono::duration<double>(_links->seconds() - before));
        }
    }

    void read_from(std::size_t peer, std::size_t bytes) {
        bool const is_near = _hosts[peer] == _hosts[static_cast<std::size_t>(this->rank())];
        NetworkLevel const& link = is_near ? _links->inside : _links->between;
        (is_near ? _links->seconds_inside : _links->seconds_between) +=
            link.latency_seconds + static_cast<double>(bytes) / link.bytes_per_second;
    }

    Links* _links;
    std::vector<std::size_t> _hosts;
};

} // namespace zero::test
