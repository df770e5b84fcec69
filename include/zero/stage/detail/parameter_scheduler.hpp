#pragma once

#include "../../backend/fence.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/detail/contains_ascending.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/storage.hpp"
#include "../any_parameter.hpp"
#include "acquisition_trace.hpp"
#include "claim_leases.hpp"
#include "engine_context.hpp"
#include "lease_errors.hpp"
#include "parameter_store.hpp"
#include "stores_by_type.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Decides when parameters can be read: when a unit is gathered, held and freed (stage 3),
/// when updated shards are published by an all-gather (stages 1 and 2), and how the values of rank
/// 0 reach all ranks. One ParameterStore per parameter type holds and moves the data.
///
/// The engine calls it: `acquire` and `release` for a unit in use, `publish` after an update.
template <class Config>
class ParameterScheduler {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    [[gnu::cold]] explicit ParameterScheduler(EngineContext<Config> const& context)
        : _layout(context.layout), _queue(context.queue), _rank(context.rank()), _row(context.row),
          _storage(context.options->storage), _prefetch(context.options->prefetch),
          _stores(*context.layout,
                  [&]<class Types>(std::size_t type) {
                      return TypeContext<Config>{context, type};
                  }),
          _published(_layout->buckets()), _users(_layout->buckets(), 0) {
        _prefetched.reserve(_layout->buckets()); // a step allocates nothing
        _claimed.reserve(_layout->buckets());
    }

    /// @brief The parameters of one type.
    template <class Types>
    [[nodiscard]] ParameterStore<Config, Types> const& store() const noexcept {
        return _stores.template get<Types>();
    }

    /// @brief Sends the registered values of rank 0 to all ranks. Collective; the values must stay
    /// until the caller has waited for the queue.
    [[gnu::cold]] void broadcast_initial(std::span<AnyParameter const> parameters) {
        if (_row.shards_parameters()) {
            for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
                _stores.of_bucket(
                    bucket, [&](auto& store) { store.broadcast_initial(bucket, parameters); });
            }
            return;
        }
        for (std::size_t index = 0; index < parameters.size(); ++index) {
            _stores.of_type(parameters[index].spec.type,
                            [&](auto& store) { store.take_initial(index, parameters); });
        }
        broadcast_full();
    }

    /// @brief Makes the replicas equal again after the caller changed values: to those of rank 0,
    /// or of the owners if each rank could only change its own shard. Collective.
    [[gnu::cold]] void synchronise_changes() {
        if (_row.shards_parameters()) {
            return;
        }
        if (!_row.shards_optimizer() || _storage != Storage::owned) {
            broadcast_full();
        } else {
            for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
                publish(bucket);
            }
        }
    }

    /// @brief Makes a unit's parameters readable for commands on `reader`. In stage 3 it is
    /// collective and gathers the buckets that are not there yet.
    /// @throws OutOfOrder if more units are held than there are leases for; nothing was changed
    void acquire(std::size_t unit, Queue reader) {
        auto const buckets = _layout->unit_buckets(unit);
        if (_row.shards_parameters()) {
            require_leases(unit);
            for (std::size_t const bucket : buckets) {
                if (!is_open(bucket)) {
                    gather(bucket);
                }
            }
        }
        for (std::size_t const bucket : buckets) {
            ++_users[bucket];
        }
        if (_row.shards_parameters()) {
            std::erase_if(_prefetched, [&](std::size_t bucket) { return _users[bucket] != 0; });
            if (auto const next = _trace.record(unit)) {
                prefetch(*next);
            }
        }
        Fence const fence =
            _row.shards_parameters() ? Fence::weights_gathered : Fence::weights_published;
        for (std::size_t const bucket : buckets) {
            Backend::wait(reader, _published[bucket], fence);
        }
    }

    /// @brief Ends one acquisition: the commands on `reader` so far are its last readers.
    void release(std::size_t unit, Queue reader) {
        auto const buckets = _layout->unit_buckets(unit);
        for (std::size_t const bucket : buckets) {
            --_users[bucket];
        }
        Event const event = Backend::record(reader);
        if (_row.shards_parameters()) {
            for (std::size_t const bucket : buckets) {
                if (_users[bucket] != 0) {
                    Backend::wait(_queue, event, Fence::weights_read);
                } else {
                    close(bucket, event);
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
        _readers.push_back({reader, event});
    }

    /// @brief Makes the communication queue wait until nothing reads the old weights (stages 0 to
    /// 2; stage 3 reads copies).
    void wait_for_readers() {
        for (auto const& last : _readers) {
            Backend::wait(_queue, last.event, Fence::weights_read);
        }
    }

    /// @brief Makes the communication queue wait until nothing reads a released lease.
    void wait_for_leases() {
        _stores.each([](auto const& store) { store.wait_for_leases(); });
    }

    /// @brief Makes an updated bucket readable on all ranks: the all-gather after the update in
    /// stages 1 and 2, where it is collective. In stage 0 every rank updated everything, and in
    /// stage 3 `acquire` gathers.
    void publish(std::size_t bucket) {
        if (_layout->elements(bucket) == 0 || _row.shards_parameters()) {
            return;
        }
        if (_row.shards_optimizer()) {
            _stores.of_bucket(bucket, [&](auto& store) { store.gather_replicas(bucket); });
        }
        _published[bucket] = Backend::record(_queue);
    }

    /// @brief Whether each bucket is sent after its update.
    [[nodiscard]] bool sends_updates() const noexcept {
        return _row.shards_optimizer() && !_row.shards_parameters() && _layout->world() > 1;
    }

    /// @brief Makes updated buckets readable that are not sent (stages 0 and 3, and a single rank).
    void publish_unsent() {
        if (!_row.shards_parameters()) {
            Event const updated = Backend::record(_queue);
            for (Event& published : _published) {
                published = updated;
            }
        }
    }

    /// @brief Makes parameters that the host has written on every rank readable.
    void publish_written() {
        Event const written = Backend::record(_queue);
        for (Event& published : _published) {
            published = written;
        }
    }

    /// @brief Takes over what does not depend on the layout: readers, and the order of
    /// acquisitions. The next step then allocates no more than it would have under `other`.
    void continue_from(ParameterScheduler& other) noexcept {
        _readers = std::move(other._readers);
        _trace = std::move(other._trace);
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

    /// @brief Starts the recording of a micro-step's acquisitions.
    void begin_trace() noexcept { _trace.begin(); }

    /// @brief Ends it.
    void end_trace() noexcept { _trace.end(); }

    /// @brief Frees prefetched buckets that were not acquired: the parameters are about to change,
    /// or a step is cancelled.
    void drop_prefetched() {
        for (std::size_t const bucket : _prefetched) {
            close_unused(bucket);
        }
        _prefetched.clear();
    }

private:
    struct LastReader {
        Queue queue;
        Event event;
    };

    [[nodiscard]] bool is_open(std::size_t bucket) const {
        return _stores.of_bucket(bucket, [&](auto const& store) { return store.is_open(bucket); });
    }

    void close(std::size_t bucket, Event const& last_use) {
        _stores.of_bucket(bucket, [&](auto& store) { store.close(bucket, last_use); });
    }

    void close_unused(std::size_t bucket) {
        if (is_open(bucket) && _users[bucket] == 0) {
            close(bucket, Backend::record(_queue));
        }
    }

    void gather(std::size_t bucket) {
        _stores.of_bucket(bucket, [&](auto& store) { store.gather(bucket); });
        _published[bucket] = Backend::record(_queue);
    }

    void broadcast_full() {
        _stores.each([](auto& store) { store.broadcast_full(); });
    }

    /// Claims memory for all buckets of a unit that are not gathered, or for none.
    [[nodiscard]] bool claim(std::size_t unit, LeaseChoice choice) {
        auto const is_wanted = [&](std::size_t bucket) {
            return !_stores.of_bucket(bucket,
                                      [&](auto const& store) { return store.is_claimed(bucket); });
        };
        return claim_leases(_stores, _layout->unit_buckets(unit), is_wanted, choice, _claimed);
    }

    /// Claims memory for a unit, for which it drops buckets that were prefetched for other units if
    /// necessary. A unit takes the places of others only if its own is held: so two consecutive
    /// units always find room, wherever units were before.
    void require_leases(std::size_t unit) {
        if (claim(unit, LeaseChoice::spare_places)) {
            return;
        }
        std::erase_if(_prefetched, [&](std::size_t bucket) {
            bool const is_wanted = contains_ascending(_layout->unit_buckets(unit), bucket);
            if (!is_wanted) {
                close_unused(bucket);
            }
            return !is_wanted;
        });
        if (!claim(unit, LeaseChoice::any_place)) {
            throw_no_parameter_lease(*_layout, unit, _rank);
        }
    }

    /// Gathers a unit before it is acquired, if there is room for it outside the places of other
    /// units.
    void prefetch(std::size_t unit) {
        if (!_prefetch || !claim(unit, LeaseChoice::spare_places)) {
            return;
        }
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            if (!is_open(bucket)) {
                gather(bucket);
                _prefetched.push_back(bucket);
            }
        }
    }

    FlatLayout const* _layout;
    Queue _queue;
    std::size_t _rank;
    StageRow _row;
    Storage _storage;
    bool _prefetch;
    StoresByType<Config, ParameterStore> _stores;
    List<Event> _published;          ///< per bucket: its last all-gather
    List<LastReader> _readers;       ///< per queue: its last reader of replicated parameters
    std::vector<std::size_t> _users; ///< per bucket: acquisitions held
    std::vector<std::size_t> _prefetched;
    std::vector<std::size_t> _claimed; ///< by the current call
    AcquisitionTrace _trace;
};

} // namespace ZERO_NAMESPACE::detail
