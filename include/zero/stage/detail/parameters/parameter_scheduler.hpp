#pragma once

#include "../../../backend/fence.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../parameter.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/stores_by_type.hpp"
#include "../gradients/gradient_sum_store.hpp"
#include "../gradients/readiness.hpp"
#include "../memory/bucket_pool.hpp"
#include "gather_schedule.hpp"
#include "parameter_store.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns whether every rank may compute the initial values of a bucket, so that each owner
/// fills its extent. The same on every rank.
[[gnu::cold]] inline bool is_filled_by_owners(FlatLayout const& layout, std::size_t bucket,
                                              std::span<AnyParameter const> parameters) {
    for (Piece const& piece : layout.pieces(bucket)) {
        if (!parameters[piece.parameter].is_deterministic) {
            return false;
        }
    }
    return true;
}

/// @brief The communicator and the queue that gathers have for themselves
/// (`GatherOptions::own_communicator`).
///
/// Each rank enqueues on it and on the queue of communication in one order, which all ranks share:
/// collectives are called at points that every rank passes in the same order. So two transports
/// that block each other never meet in a circle.
template <class Config>
class OwnGathers {
public:
    using Backend = typename Config::Backend;
    using Ranks = ShardOf<typename Config::Communicator>;
    using OwnedQueue = typename Backend::OwnedQueue;

    /// @brief Splits the ranks over which states are cut. Collective.
    OwnGathers(Ranks& divided, std::unique_ptr<OwnedQueue> queue)
        requires SplittableCommunicator<Ranks>
        : _queue(std::move(queue)), _ranks(divided.split(0, divided.rank())) {}
    OwnGathers(OwnGathers const&) = delete;
    OwnGathers& operator=(OwnGathers const&) = delete;
    ~OwnGathers() { drain<Backend>(Backend::handle(*_queue)); }

    [[nodiscard]] GatherRoute<Config> route() { return {&_ranks, Backend::handle(*_queue)}; }

    /// @brief Throws what a command on the queue threw, or what the transport found.
    void rethrow_failure() {
        Backend::rethrow_failure(Backend::handle(*_queue));
        rethrow_failure_of(_ranks);
    }

    /// @brief Adds the memory of both to a plan.
    void add_to(MemoryPlan& plan) const {
        if constexpr (requires { _queue->size_bytes(); }) {
            plan[BufferKind::commands].content_bytes += _queue->size_bytes();
        }
        plan[BufferKind::communicator].content_bytes += scratch_bytes_of(_ranks, 0);
    }

private:
    std::unique_ptr<OwnedQueue> _queue;
    Ranks _ranks;
};

/// @brief Decides when parameters can be read: when a unit is gathered, held and freed (stage 3),
/// when updated shards are published by an all-gather (stages 1 and 2), and how initial values
/// reach all ranks. One ParameterStore per parameter type holds and moves the data. The
/// GatherSchedule decides which units are gathered in advance and which stay gathered.
///
/// The engine calls it: `acquire` and `release` for a unit in use, `publish` after an update.
template <class Config>
class ParameterScheduler {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    [[gnu::cold]] explicit ParameterScheduler(EngineContext<Config> const& context)
        : _layout(context.layout), _communicator(context.communicator), _queue(context.queue),
          _gathers(context.queue), _rank(context.rank()), _row(context.row),
          _is_in_place(reads_in_place(context)), _storage(context.options->storage),
          _schedule(*context.layout, context.options->gather, context.rank()),
          _stores(*context.layout,
                  [&]<class Types>(std::size_t type) {
                      return TypeContext<Config>{context, type};
                  }),
          _published(_layout->buckets()),
          _last_readers(_row.shards_parameters() ? _layout->buckets() : 0) {
        _claimed.reserve(_layout->buckets()); // a step allocates nothing
        _holders.reserve(_row.shards_parameters() ? 8 : 0);
    }

    /// @brief Lets gathers have a communicator and a queue of their own from now on.
    void gather_apart(std::unique_ptr<OwnGathers<Config>> own) {
        _own = std::move(own);
        if (_own) {
            auto const route = _own->route();
            _gathers = route.queue;
            _waits_for_shards = true; // which commands on the other queue have written
            _stores.each([&](auto& store) { store.set_gather_route(route); });
        }
    }

    /// @brief Calls `use` with what gathers have for themselves, if anything.
    template <class Use>
    void with_own_gathers(Use const& use) const {
        if (_own) {
            use(*_own);
        }
    }

    /// @brief Throws a failure of gathers that have a queue of their own.
    void rethrow_failure() const {
        with_own_gathers([](auto& own) { own.rethrow_failure(); });
    }

    /// @brief The parameters of one type.
    template <class Types>
    [[nodiscard]] ParameterStore<Config, Types> const& store() const noexcept {
        return _stores.template get<Types>();
    }

    /// @brief Gives the parameters their registered values. The owners fill each bucket that every
    /// rank may compute, and stages 0 to 2 then gather it; rank 0 sends all other buckets.
    /// Collective; the registered values must stay valid until the caller has waited for the queue.
    /// @param first buckets without a parameter from this one on are left out
    [[gnu::cold]] void set_initial(std::span<AnyParameter const> parameters,
                                   std::size_t first = 0) {
        if (_storage != Storage::owned) {
            broadcast_full();
            return;
        }
        // The enqueued fill must end before initialisers write from the host.
        Backend::synchronise(Backend::record(_queue));
        // All owners compute before any bucket is sent.
        for (bool const sends : {false, true}) {
            for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
                if (first != 0 && !has_any_from(first, bucket)) {
                    continue;
                }
                bool const is_filled = is_filled_by_owners(*_layout, bucket, parameters);
                _stores.of_bucket(bucket, [&](auto& store) {
                    if (sends && !is_filled) {
                        store.broadcast_initial(bucket, parameters);
                    } else if (sends && !_row.shards_parameters()
                               && _layout->elements(bucket) != 0) {
                        store.gather_replicas(bucket);
                    } else if (!sends && is_filled) {
                        store.initialise_own(bucket, parameters);
                    }
                });
            }
        }
    }

    /// @brief Makes the replicas equal again after the caller changed values: to those of rank 0,
    /// or of the owners if each rank could only change its own shard. Collective.
    [[gnu::cold]] void synchronise_changes() {
        if (_row.shards_parameters()) {
            return;
        }
        if (!_row.shards_optimizer() || _storage != Storage::owned) {
            broadcast_full();
        } else if constexpr (!codes_weights<Config>) { // in codes they follow from master weights
            for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
                publish(bucket, bucket + 1);
            }
        }
    }

    /// @brief Makes a unit's parameters readable for commands on `reader`. In stage 3 it is
    /// collective: it gathers the buckets that are not gathered yet, and then other units in
    /// advance.
    /// @throws OutOfOrder if more units are held than there are leases for, or under
    /// ChangedOrder::error; nothing was changed
    void acquire(std::size_t unit, Queue reader) {
        Fence fence = Fence::weights_published;
        if (_row.shards_parameters()) {
            fence = Fence::weights_gathered;
            _schedule.require_recorded_order(unit);
            gather_deferred();
            require_leases(unit);
            bool const is_late = gather_missing(unit, GatherSchedule::none);
            _schedule.hold(unit, is_late);
            _holders.push_back({unit, reader});
            _is_deferred = _layout->world() > 1 && _schedule.is_before_held();
            if (!_is_deferred) {
                gather_ahead();
            }
        }
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            Backend::wait(reader, _published[bucket], fence);
        }
    }

    /// @brief Gathers in advance what an acquisition postponed because the unit before it was held.
    /// Other ranks may have released that unit earlier, and gathered then. It is therefore called
    /// before anything else is sent, so the gathers of all ranks have one order. Collective.
    void gather_deferred() {
        if (std::exchange(_is_deferred, false)) {
            _schedule.restart_ahead();
            gather_ahead();
            for (std::size_t const bucket : _layout->unit_buckets(_schedule.last_unit())) {
                if (_schedule.is_unneeded(bucket)) {
                    close_idle(bucket);
                }
            }
        }
    }

    /// @brief Ends one acquisition: the commands on `reader` so far are its last readers.
    void release(std::size_t unit, Queue reader) {
        Event const event = Backend::record(reader);
        if (_row.shards_parameters()) {
            forget_holder(unit, reader);
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
                // While gathers are postponed, the last unit keeps its memory, as on the other
                // ranks.
                bool const is_over =
                    _schedule.release(bucket) && !(_is_deferred && _schedule.is_last(bucket));
                if (_schedule.is_used(bucket)) {
                    Backend::wait(_gathers, event, Fence::weights_read);
                } else if (is_over && !_last_readers[bucket].is_set) {
                    close(bucket, event);
                } else {
                    remember_reader(bucket, reader, event);
                    if (is_over) {
                        close_idle(bucket);
                    }
                }
            }
            return;
        }
        for (auto& last : _readers) {
            if (last.queue == reader) {
                last.event = event;
                return;
            }
        }
        _readers.push_back({reader, event, true});
    }

    /// @brief Makes the communication queue wait until nothing reads the old weights. In stage 3
    /// gathers read them, and the model only on a single rank.
    void wait_for_readers() {
        if (_own) {
            Backend::wait(_queue, Backend::record(_gathers), Fence::shards_gathered);
        }
        for (auto const& last : _readers) {
            Backend::wait(_queue, last.event, Fence::weights_read);
        }
        if (_is_in_place) {
            wait_for_readers_of_leases();
        }
    }

    /// @brief Makes the communication queue wait until nothing reads a lease, released or not.
    void wait_for_readers_of_leases() {
        wait_for_leases();
        for (auto const& last : _last_readers) {
            if (last.is_set) {
                Backend::wait(_queue, last.event, Fence::weights_read);
            }
        }
    }

    /// @brief Makes the communication queue wait until nothing reads a released lease.
    void wait_for_leases() {
        _stores.each([](auto const& store) { store.wait_for_leases(); });
    }

    /// @brief Returns the first of the buckets up to `end` that are published together: as many as
    /// the transport starts in one group without delaying the forward pass noticeably.
    [[nodiscard]] std::size_t first_of_group(std::size_t end) {
        constexpr std::size_t most_bytes = std::size_t{64} << 20U;
        std::size_t begin = end - 1;
        if constexpr (GroupsGathers<ShardOf<typename Config::Communicator>>) {
            std::size_t bytes = bytes_in_place(begin);
            while (bytes != 0 && begin != 0) {
                std::size_t const next = bytes_in_place(begin - 1);
                if (next == 0 || bytes + next > most_bytes) {
                    break;
                }
                bytes += next;
                --begin;
            }
        }
        return begin;
    }

    /// @brief Makes the updated buckets [begin, end) of a group readable on all ranks: the
    /// all-gather after the update in stages 1 and 2, where it is collective. In stage 0 every rank
    /// updated everything, and in stage 3 `acquire` gathers.
    void publish(std::size_t begin, std::size_t end) {
        bool const is_single = end - begin == 1; // only such a bucket can be empty
        if (_row.shards_parameters() || (is_single && _layout->elements(begin) == 0)) {
            return;
        }
        auto const gather = [&] {
            for (std::size_t bucket = end; bucket-- > begin;) {
                _stores.of_bucket(bucket, [&](auto& store) { store.publish(bucket); });
            }
        };
        if (_row.shards_optimizer()) {
            if constexpr (GroupsGathers<ShardOf<typename Config::Communicator>>) {
                if (is_single) {
                    gather();
                } else {
                    shard_of(*_communicator).grouped(_queue, gather);
                }
            } else {
                gather();
            }
        }
        Event const done = Backend::record(_queue);
        for (std::size_t bucket = begin; bucket < end; ++bucket) {
            _published[bucket] = done;
        }
    }

    /// @brief Whether each bucket is sent after its update. In codes a single rank sends as well:
    /// it reads what is decoded.
    [[nodiscard]] bool sends_updates() const noexcept {
        return _row.shards_optimizer() && !_row.shards_parameters()
               && (codes_weights<Config> || _layout->world() > 1);
    }

    /// @brief Makes updated buckets that are not sent readable: in stage 0, and on a single rank. A
    /// no-op in stage 3.
    void publish_unsent() {
        if (!_row.shards_parameters()) {
            publish_written();
        }
    }

    /// @brief Makes parameters that the host has written on every rank readable.
    void publish_written() {
        Event const written = Backend::record(_queue);
        for (Event& published : _published) {
            published = written;
        }
    }

    /// @brief Takes from `other` what does not depend on the layout: readers, the order of
    /// acquisitions and its counts. The next step then allocates no more than it would have under
    /// `other`.
    void continue_from(ParameterScheduler& other) {
        _readers = std::move(other._readers);
        gather_apart(std::move(other._own));
        _schedule.continue_from(other._schedule);
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const { return _stores.table_bytes(); }

    /// @brief Drops events. Call it between steps, with nothing held, once all earlier commands are
    /// ordered before all later ones.
    void forget_events() noexcept {
        _stores.each([](auto& store) { store.forget_events(); });
        for (Event& event : _published) {
            event = {};
        }
        for (LastReader& last : _readers) {
            last.event = {};
        }
    }

    /// @brief The order of acquisitions, and what was gathered.
    [[nodiscard]] GatherSchedule& schedule() noexcept { return _schedule; }
    [[nodiscard]] GatherSchedule const& schedule() const noexcept { return _schedule; }

    /// @brief Frees every gathered bucket that is not in use, and drops secondary copies: the
    /// parameters are about to change, or a step is cancelled. Call it on every rank.
    void drop_prefetched() {
        _waits_for_shards = _own != nullptr;
        _schedule.for_idle([&](std::size_t bucket) { close_idle(bucket); });
        if constexpr (SecondaryCommunicator<typename Config::Communicator>) {
            _stores.each([](auto& store) { store.drop_copies(); });
        }
    }

private:
    [[gnu::cold]] [[nodiscard]] bool has_any_from(std::size_t first, std::size_t bucket) const {
        bool has_any = false;
        for (Piece const& piece : _layout->pieces(bucket)) {
            has_any = has_any || piece.parameter >= first;
        }
        return has_any;
    }

    std::size_t bytes_in_place(std::size_t bucket) {
        std::size_t bytes = 0;
        _stores.of_bucket(bucket, [&](auto& store) { bytes = store.bytes_in_place(bucket); });
        return bytes;
    }

    struct LastReader {
        Queue queue{};
        Event event{};
        bool is_set = false;
    };

    struct Holder {
        std::size_t unit = 0;
        Queue queue{};
    };

    void forget_holder(std::size_t unit, Queue reader) noexcept {
        for (Holder& holder : _holders) {
            if (holder.unit == unit && holder.queue == reader) {
                holder = _holders.back();
                _holders.pop_back();
                return;
            }
        }
    }

    void gather_ahead() {
        for (std::size_t next = _schedule.next_ahead();
             next != GatherSchedule::none && claim(next, LeaseChoice::spare_places);
             next = _schedule.next_ahead()) {
            gather_missing(next, next);
        }
    }

    /// Gathers a bucket again that the last acquisition used and still holds: a rank that has
    /// released it gathers it now. It receives the bits that it has, in the same place; the readers
    /// of its holders wait for it.
    void gather_again(std::size_t bucket, char const* context) {
        for (Holder const& holder : _holders) {
            Backend::wait(_gathers, Backend::record(holder.queue), Fence::weights_read);
        }
        _stores.of_bucket(bucket, [&](auto& store) { store.gather_again(bucket, context); });
        _published[bucket] = Backend::record(_gathers);
        for (Holder const& holder : _holders) {
            Backend::wait(holder.queue, _published[bucket], Fence::weights_gathered);
        }
        keep_copy(bucket); // as the ranks that do not hold it
        _schedule.note_gather_again(bucket);
    }

    void close(std::size_t bucket, Event const& last_use) {
        _stores.of_bucket(bucket, [&](auto& store) { store.close(bucket, last_use); });
        _schedule.note_free(bucket);
    }

    /// Frees a bucket that is not in use. Without a reader its gather is its last use.
    void close_idle(std::size_t bucket) {
        LastReader& last = _last_readers[bucket];
        if (last.is_set) {
            last.is_set = false;
            close(bucket, last.event);
        } else {
            close(bucket, Backend::record(_gathers));
        }
    }

    /// Remembers the last reader of a bucket that stays gathered. One event is kept, so the queue
    /// of gathers waits for a reader on another queue now.
    void remember_reader(std::size_t bucket, Queue reader, Event const& event) {
        LastReader& last = _last_readers[bucket];
        if (last.is_set && !(last.queue == reader)) {
            Backend::wait(_gathers, last.event, Fence::weights_read);
        }
        last = {reader, event, true};
    }

    /// Gathers the buckets of a unit that are not gathered yet.
    /// @param ahead the unit if it is gathered in advance, otherwise `none`
    /// @return whether anything was gathered
    bool gather_missing(std::size_t unit, std::size_t ahead) {
        bool is_gathered = false;
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            if (!_schedule.is_gathered(bucket)) {
                gather(bucket, _schedule.context_of(unit));
                _schedule.note_gather(bucket, ahead);
                is_gathered = is_gathered || _layout->elements(bucket) != 0;
            } else if (ahead == GatherSchedule::none && _layout->world() > 1
                       && _layout->elements(bucket) != 0 && _schedule.is_over(bucket)) {
                gather_again(bucket, _schedule.context_of(unit));
                is_gathered = true;
            }
        }
        return is_gathered;
    }

    /// The only place where a bucket is gathered for use, by its store.
    void gather(std::size_t bucket, char const* context) {
        if (_waits_for_shards) {
            _waits_for_shards = false;
            Backend::wait(_gathers, Backend::record(_queue), Fence::shards_written);
        }
        _stores.of_bucket(bucket, [&](auto& store) { store.gather(bucket, context); });
        _published[bucket] = Backend::record(_gathers);
        keep_copy(bucket);
    }

    /// Readers do not wait for the copy. What writes to the lease next is on this queue.
    void keep_copy([[maybe_unused]] std::size_t bucket) {
        if constexpr (SecondaryCommunicator<typename Config::Communicator>) {
            _stores.of_bucket(bucket, [&](auto& store) { store.keep_copy(bucket); });
        }
    }

    void broadcast_full() {
        _stores.each([](auto& store) { store.broadcast_full(); });
    }

    /// Claims memory for all buckets of a unit that are not gathered, or for none.
    [[nodiscard]] bool claim(std::size_t unit, LeaseChoice choice) {
        auto const is_wanted = [&](std::size_t bucket) { return !_schedule.is_gathered(bucket); };
        return _schedule.has_room(unit)
               && claim_leases(_stores, _layout->unit_buckets(unit), is_wanted, choice, _claimed);
    }

    /// Claims memory for a unit, and frees buckets that are not in use if necessary. A unit takes
    /// the places of others only as a last resort, when its own and the spare ones do not suffice.
    /// So two consecutive units always find room, wherever units were before.
    void require_leases(std::size_t unit) {
        bool is_met = claim(unit, LeaseChoice::spare_places);
        for (std::size_t bucket = 0; !is_met && bucket != GatherSchedule::none;) {
            bucket = _schedule.first_to_free(unit);
            if (bucket != GatherSchedule::none) {
                close_idle(bucket);
                is_met = claim(unit, LeaseChoice::spare_places);
            }
        }
        if (!is_met && !claim(unit, LeaseChoice::any_place)) {
            throw_no_parameter_lease(*_layout, unit, _rank);
        }
    }

    FlatLayout const* _layout;
    typename Config::Communicator* _communicator;
    Queue _queue;
    Queue _gathers; ///< `_queue`, unless gathers have one of their own
    std::size_t _rank;
    StageRow _row;
    bool _is_in_place; ///< see `reads_in_place`
    Storage _storage;
    GatherSchedule _schedule;
    StoresByType<Config, ParameterStore> _stores;
    List<Event> _published;            ///< per bucket: its last gather, update or write
    List<LastReader> _readers;         ///< per queue: its last reader of replicated parameters
    List<LastReader> _last_readers;    ///< per sharded bucket: its last reader while it stays
                                       ///< gathered
    std::vector<std::size_t> _claimed; ///< buckets claimed by the current call
    std::vector<Holder> _holders;      ///< open handles of sharded parameters
    bool _is_deferred = false;         ///< the last acquisition has not gathered in advance yet
    bool _waits_for_shards = false;    ///< shards may change before the next gather on `_gathers`
    std::unique_ptr<OwnGathers<Config>> _own; ///< last: it waits for commands that use the stores
};

} // namespace ZERO_NAMESPACE::detail
