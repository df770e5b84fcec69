#pragma once

#include <zero/comm/detail/host_communicator.hpp>
#include <zero/comm/detail/shared_memory.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/core/error.hpp>
#include <zero/host/inline_queue.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace zero::test {

/// @brief Collectives of threads in memory that each of them maps, as processes of one host do.
/// What peers cannot read goes over a loopback.
class SharedThreadsCollectives {
public:
    static constexpr bool reduces_integers_together = true;

    inline static std::atomic<std::size_t> in_memory = 0; ///< collectives that were not sent

    explicit SharedThreadsCollectives(LoopbackCommunicator& inner)
        : _inner(&inner), _flights(place().world) {
        host::InlineQueue queue;
        _shared.join(place(), "",
                     [&](zero::detail::CollectiveCall const& call, auto const& memory) {
                         enqueue(call, memory, &queue);
                     });
    }
    SharedThreadsCollectives(SharedThreadsCollectives const&) = delete;
    SharedThreadsCollectives& operator=(SharedThreadsCollectives const&) = delete;
    ~SharedThreadsCollectives() { _flights.synchronise(); }

    [[nodiscard]] zero::detail::GroupPlace place() const noexcept {
        return {static_cast<std::size_t>(_inner->rank()), static_cast<std::size_t>(_inner->size())};
    }
    [[nodiscard]] std::size_t scratch_bytes() const noexcept { return 0; }
    [[nodiscard]] zero::detail::SharedGroup const& shared() const noexcept { return _shared; }
    void enqueue(zero::detail::CollectiveCall const& call,
                 zero::detail::CollectiveMemory const& memory, host::Queue* queue) {
        _flights.enqueue(call, memory, queue, [this](zero::detail::Flight const& flight) {
            if (_shared.is_shared()
                && _shared.run(flight, [&](zero::detail::Meeting meeting) { meet(meeting); })) {
                ++in_memory;
            } else {
                send(flight);
            }
        });
    }
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _inner->abort(cause, is_provisional);
    }
    void rethrow_failure() {}

private:
    void meet(zero::detail::Meeting meeting) {
        _shared.come(meeting);
        if (!_shared.wait(meeting, std::chrono::minutes(1)) || !_shared.difference().empty()) {
            throw TimedOut("a rank did not come: " + _shared.difference());
        }
    }

    void send(zero::detail::Flight const& flight) {
        std::size_t const rank = place().rank;
        std::size_t const bytes = flight.count * flight.element_bytes;
        std::vector<std::size_t> cuts;
        for (std::size_t const cut : flight.cuts) {
            cuts.push_back(cut * flight.element_bytes);
        }
        std::size_t const own = cuts[rank + 1] - cuts[rank];
        auto const* const from = static_cast<unsigned char const*>(flight.send);
        auto* const to = static_cast<unsigned char*>(flight.receive);
        auto const sum = [&](void* out) {
            std::vector<unsigned char> pieces(own * place().world);
            _inner->exchange(from, pieces.data(), cuts, &_queue);
            std::vector<void const*> table;
            for (std::size_t peer = 0; peer < place().world; ++peer) {
                table.push_back(pieces.data() + peer * own);
            }
            if (own != 0) {
                flight.sum.add(out, flight.sum.held, 0, table.data(), _inner->size(),
                               own / flight.element_bytes);
            }
        };
        switch (flight.kind) {
        case CollectiveKind::reduce_scatter: sum(to); break;
        case CollectiveKind::exchange: _inner->exchange(from, to, cuts, &_queue); break;
        case CollectiveKind::all_gather: _inner->all_gather(from, to, cuts, &_queue); break;
        case CollectiveKind::all_reduce:
            sum(to + cuts[rank]);
            _inner->all_gather(to + cuts[rank], to, cuts, &_queue);
            break;
        case CollectiveKind::broadcast:
            _inner->broadcast(to, bytes, static_cast<int>(flight.detail), &_queue);
            break;
        case CollectiveKind::integers: {
            auto* const values = static_cast<std::int64_t*>(flight.receive);
            std::size_t const sums =
                zero::detail::CollectiveCall::sums_of(flight.detail, flight.count);
            _inner->all_reduce_integers(values, sums, flight.count - sums, &_queue);
            break;
        }
        }
    }

    LoopbackCommunicator* _inner;
    host::InlineQueue _queue;
    zero::detail::SharedGroup _shared;
    zero::detail::Flights _flights;
};

/// @brief A communicator of such threads, around that of a rank. All ranks make theirs together.
class SharedThreads : public zero::detail::HostCommunicator<SharedThreadsCollectives> {
public:
    using Inner = LoopbackCommunicator;

    explicit SharedThreads(Inner& inner)
        : HostCommunicator(std::make_unique<SharedThreadsCollectives>(inner)) {}
};
static_assert(ExchangingCommunicator<SharedThreads>);

} // namespace zero::test
