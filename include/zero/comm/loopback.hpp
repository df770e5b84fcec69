#pragma once

#include "../backend/fence.hpp"
#include "../core/buffer.hpp"
#include "../host/host_backend.hpp"
#include "communicator.hpp"
#include "rendezvous.hpp"
#include "traffic_count.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zero {

struct LoopbackOptions {
    Rendezvous::Duration time_out = std::chrono::minutes(30); ///< how long a rank waits for its peers in one collective
};

/// @brief A communicator between the threads of one process, one per rank; the oracle for every other transport.
///
/// The ranks meet on the host: the calling thread blocks until all ranks called, but not for the data, whose movement is enqueued. Sums are formed in float in rank
/// order, starting with the value of rank 0, and rounded once. Type, counts and tag are compared; a difference is a CollectiveMismatch on
/// every rank. No call allocates. When a rank's queue has been drained after a collective, returned or thrown, no peer reads its memory.
/// Destroying it means that the rank leaves: peers that would wait for it get `Aborted`.
template <class B>
class Loopback {
public:
    using policy_category = CommunicatorCategory;
    using Backend = B;
    using Queue = typename B::Queue;
    using Event = typename B::Event;

    /// @brief The communicators of a new group, by rank. @throws InvalidArgument when world is not positive.
    static std::vector<Loopback> make_group(int world, LoopbackOptions const& options = {}) {
        if (world <= 0) {
            throw InvalidArgument("zero: a group of " + std::to_string(world) + " ranks; world has to be at least 1.");
        }
        auto const group = std::make_shared<Group>(static_cast<std::size_t>(world), options);
        std::vector<Loopback> ranks;
        for (std::size_t rank = 0; rank < group->slots.size(); ++rank) {
            ranks.push_back(Loopback(group, rank));
        }
        return ranks;
    }

    Loopback(Loopback&&) noexcept = default;
    Loopback& operator=(Loopback&&) = delete;

    ~Loopback() {
        if (_group != nullptr) {
            try {
                _group->rendezvous.abort("rank " + std::to_string(_rank) + " left the group (its communicator was destroyed)", false);
            } catch (...) { // no memory for the text
                _group->rendezvous.abort("a rank left the group", false);
            }
        }
    }

    [[nodiscard]] int rank() const noexcept { return static_cast<int>(_rank); }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(world()); }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        std::size_t const own = cuts[_rank + 1] - cuts[_rank];
        collective(CollectiveKind::reduce_scatter, dtype_of<T>(), cuts, tag, send, receive, queue, [&] { sum_extent(receive, cuts, queue); });
        _traffic.add(CollectiveKind::reduce_scatter, own * (world() - 1), sizeof(T));
    }

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        std::size_t const own = cuts[_rank + 1] - cuts[_rank];
        collective(CollectiveKind::all_gather, dtype_of<T>(), cuts, tag, send, receive, queue, [&] {
            for (std::size_t peer = 0; peer < world(); ++peer) {
                B::copy_bytes(queue, receive + cuts[peer], slot(peer).send, (cuts[peer + 1] - cuts[peer]) * sizeof(T));
            }
        });
        _traffic.add(CollectiveKind::all_gather, cuts.back() - own, sizeof(T));
    }

    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        std::size_t const own = cuts[_rank + 1] - cuts[_rank];
        collective(CollectiveKind::all_reduce, dtype_of<T>(), cuts, tag, send, receive, queue, [&] { sum_extent(receive + cuts[_rank], cuts, queue); },
                   [&] {
                       for (std::size_t peer = 0; peer < world(); ++peer) {
                           T const* const reduced = static_cast<T const*>(slot(peer).receive);
                           B::copy_bytes(queue, receive + cuts[peer], reduced + cuts[peer], (cuts[peer + 1] - cuts[peer]) * sizeof(T));
                       }
                   });
        _traffic.add(CollectiveKind::all_reduce, own * (world() - 1) + (cuts.back() - own), sizeof(T));
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        std::array<std::size_t, 2> const counts{static_cast<std::size_t>(root), elements};
        auto const source = static_cast<std::size_t>(root);
        if (root < 0 || source >= world()) {
            throw InvalidArgument("zero: broadcast from rank " + std::to_string(root) + ", which is not in the group of " + std::to_string(world()) + '.');
        }
        collective(CollectiveKind::broadcast, dtype_of<T>(), counts, tag, buffer, buffer, queue, [&] { B::copy_bytes(queue, buffer, slot(source).send, elements * sizeof(T)); });
        _traffic.add(CollectiveKind::broadcast, source == _rank ? 0 : elements, sizeof(T));
    }

    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction, Queue queue, CollectiveTag tag = {}) {
        for (std::size_t done = 0; done < elements; done += scratch_elements) {
            std::size_t const part = elements - done < scratch_elements ? elements - done : scratch_elements;
            reduce_integers(values + done, part, reduction, queue, tag);
        }
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept { _group->rendezvous.abort(cause, is_provisional); }

    /// @brief Elements and bytes that this rank read from the memory of others.
    [[nodiscard]] TrafficCount const& traffic() const noexcept { return _traffic; }
    void reset_traffic() noexcept { _traffic = {}; }

private:
    static constexpr std::size_t scratch_elements = 64;
    static constexpr std::size_t tables = 64;

    /// What a rank shows the others. Written before `enter`; the events also between `enter` and the next `pass`.
    struct Slot {
        CollectiveKind kind{};
        DType type{};
        std::size_t count = 0;
        std::uint64_t cuts_hash = 0;
        CollectiveTag tag{};
        void const* send = nullptr;
        void* receive = nullptr;
        Event ready{};
        Event reduced{};
        Event done{};
    };

    struct Group {
        Group(std::size_t world, LoopbackOptions const& options) : rendezvous(world, options.time_out), slots(world) {}
        Rendezvous rendezvous;
        std::vector<Slot> slots;
    };

    /// The pointers of one sum, which have to live until it ran.
    struct Table {
        std::vector<void const*> peers;
        Event used{};
    };

    Loopback(std::shared_ptr<Group> group, std::size_t rank)
        : _group(std::move(group)), _rank(rank), _tables(tables), _scratch(B::default_memory(), scratch_elements, BufferKind::control) {
        for (Table& table : _tables) {
            table.peers.resize(world());
        }
    }

    [[nodiscard]] std::size_t world() const noexcept { return _group->slots.size(); }
    [[nodiscard]] Slot& slot(std::size_t rank) noexcept { return _group->slots[rank]; }

    static std::uint64_t hash_of(std::span<std::size_t const> cuts) noexcept {
        std::uint64_t hash = 14695981039346656037U;
        for (std::size_t const cut : cuts) {
            hash = (hash ^ cut) * 1099511628211U;
        }
        return hash;
    }

    /// The frame of every collective: publish, meet, compare, let `first` read the peers, perhaps meet and let `second` read them, part.
    template <class First, class Second = std::nullptr_t>
    void collective(CollectiveKind kind, DType type, std::span<std::size_t const> cuts, CollectiveTag tag, void const* send, void* receive, Queue queue, First const& first,
                    Second const& second = nullptr) {
        Slot& own = slot(_rank);
        own.kind = kind;
        own.type = type;
        own.count = cuts.back();
        own.cuts_hash = hash_of(cuts);
        own.tag = tag;
        own.send = send;
        own.receive = receive;
        own.ready = B::record(queue);
        _group->rendezvous.enter(_rank, tag.what, tag.index);
        std::string const difference = find_difference();
        if (!difference.empty()) {
            _group->rendezvous.pass();
            _group->rendezvous.abort(difference, false);
            throw CollectiveMismatch("zero: " + difference + "; every rank has to call the same collectives in the same order.");
        }
        std::exception_ptr failure;
        attempt(failure, [&] {
            wait_for_peers(queue, &Slot::ready, Fence::peers_ready);
            first();
        });
        if constexpr (!std::is_same_v<Second, std::nullptr_t>) {
            attempt(failure, [&] { own.reduced = B::record(queue); });
            _group->rendezvous.pass();
            attempt(failure, [&] {
                wait_for_peers(queue, &Slot::reduced, Fence::peers_reduced);
                second();
            });
        }
        attempt(failure, [&] { own.done = B::record(queue); });
        _group->rendezvous.pass();
        attempt(failure, [&] { wait_for_peers(queue, &Slot::done, Fence::peers_done); });
        if (failure != nullptr) {
            fail(failure);
        }
    }

    template <class Body>
    static void attempt(std::exception_ptr& failure, Body const& body) noexcept {
        if (failure == nullptr) {
            try {
                body();
            } catch (...) {
                failure = std::current_exception();
            }
        }
    }

    [[noreturn]] void fail(std::exception_ptr const& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (std::exception const& error) {
            abort("rank " + std::to_string(_rank) + ": " + error.what());
            throw;
        }
    }

    void wait_for_peers(Queue queue, Event Slot::*event, Fence fence) {
        for (std::size_t peer = 0; peer < world(); ++peer) {
            if (peer != _rank) {
                B::wait(queue, slot(peer).*event, fence);
            }
        }
    }

    /// Empty when all ranks called the same.
    [[nodiscard]] std::string find_difference() const {
        auto const& slots = _group->slots;
        Slot const& first = slots[0];
        for (std::size_t rank = 1; rank < slots.size(); ++rank) {
            Slot const& other = slots[rank];
            if (other.kind != first.kind || other.type != first.type || other.count != first.count || other.cuts_hash != first.cuts_hash
                || std::string_view(other.tag.what) != first.tag.what || other.tag.index != first.tag.index) {
                return "rank 0 called " + describe(first) + ", rank " + std::to_string(rank) + " called " + describe(other);
            }
        }
        return {};
    }

    static std::string describe(Slot const& slot) {
        return std::string(name_of(slot.kind)) + " of " + std::to_string(slot.count) + ' ' + name_of(slot.type) + " ('" + slot.tag.what + ' ' + std::to_string(slot.tag.index)
             + "', cuts " + std::to_string(slot.cuts_hash % 10000) + ')';
    }

    /// Sums this rank's extent of all ranks' `send` into `out`.
    template <class T>
    void sum_extent(T* out, std::span<std::size_t const> cuts, Queue queue) {
        std::size_t const elements = cuts[_rank + 1] - cuts[_rank];
        if (elements == 0) {
            return;
        }
        T const* const* const peers = pointers<T>([&](Slot const& peer) { return static_cast<T const*>(peer.send) + cuts[_rank]; });
        B::sum_ranks(queue, out, peers, size(), elements);
        _table_in_use->used = B::record(queue);
    }

    /// A table of one pointer per peer from the ring.
    template <class T, class Pointer>
    T const* const* pointers(Pointer const& pointer) {
        static_assert(sizeof(T const*) == sizeof(void const*));
        Table& table = _tables[_next_table++ % _tables.size()];
        B::synchronize(table.used);
        auto* const memory = reinterpret_cast<std::byte*>(table.peers.data());
        T const** begin = nullptr;
        for (std::size_t peer = 0; peer < world(); ++peer) {
            auto* const entry = ::new (static_cast<void*>(memory + peer * sizeof(T const*))) (T const*)(pointer(slot(peer)));
            begin = peer == 0 ? entry : begin;
        }
        _table_in_use = &table;
        return begin;
    }

    void reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction, Queue queue, CollectiveTag tag) {
        std::array<std::size_t, 2> const counts{static_cast<std::size_t>(reduction), elements};
        B::wait(queue, _scratch_used, Fence::peers_done);
        collective(CollectiveKind::integers, DType::int64, counts, tag, values, values, queue, [&] {
            auto const* const peers = pointers<std::int64_t>([&](Slot const& peer) { return static_cast<std::int64_t const*>(peer.send); });
            if (reduction == IntegerReduction::sum) {
                B::sum_integers(queue, _scratch.data(), peers, size(), elements);
            } else {
                B::min_integers(queue, _scratch.data(), peers, size(), elements);
            }
            _table_in_use->used = B::record(queue);
        });
        B::copy_bytes(queue, values, _scratch.data(), elements * sizeof(std::int64_t));
        _scratch_used = B::record(queue);
        _traffic.add(CollectiveKind::integers, elements * (world() - 1), sizeof(std::int64_t));
    }

    std::shared_ptr<Group> _group;
    std::size_t _rank;
    TrafficCount _traffic;
    std::vector<Table> _tables;
    std::size_t _next_table = 0;
    Table* _table_in_use = nullptr;
    Buffer<std::int64_t> _scratch;
    Event _scratch_used{};
};

using LoopbackCommunicator = Loopback<HostBackend>;
static_assert(Communicator<LoopbackCommunicator>);

} // namespace zero
