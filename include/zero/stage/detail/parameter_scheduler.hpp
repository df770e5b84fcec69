#pragma once

#include "../../backend/fence.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "../parameter.hpp"
#include "engine_context.hpp"
#include "lease_errors.hpp"
#include "parameter_store.hpp"
#include "visit_tuple.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief When parameters can be read: how a unit is gathered, held and freed (stage 3), when
/// updated shards are published (stages 1 and 2), and how the values of rank 0 reach all. The data
/// is the business of one `ParameterStore` for each parameter type.
template <class Config>
class ParameterScheduler {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    explicit ParameterScheduler(EngineContext<Config> const& context)
        : ParameterScheduler(context, std::make_index_sequence<Config::types>()) {}

    /// @brief The parameters of one type.
    template <class Types>
    [[nodiscard]] ParameterStore<Config, Types> const& memory() const noexcept {
        return std::get<ParameterStore<Config, Types>>(_memories);
    }

    /// @brief Sends the registered values of rank 0 to all. Collective; the caller waits for the
    /// queue before it lets go of the values.
    void broadcast_initial(std::span<AnyParameter const> parameters) {
        if (_row.shards_parameters()) {
            for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
                with_memory(_layout->bucket(bucket).type,
                            [&](auto& memory) { memory.broadcast_initial(bucket, parameters); });
            }
            return;
        }
        for (std::size_t index = 0; index < parameters.size(); ++index) {
            with_memory(parameters[index].spec.type,
                        [&](auto& memory) { memory.take_initial(index, parameters); });
        }
        broadcast_full();
    }

    /// @brief Makes the replicas equal again after the caller changed values: those of rank 0, or
    /// of the owners where each rank could change its shard only. Collective.
    void synchronise_changes() {
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

    /// @brief Makes a unit's parameters readable for commands on `reader`. Stage 3: collective,
    /// gathers what is not there yet.
    /// @throws OutOfOrder when more units are held than there are leases for; nothing was changed
    /// then.
    void acquire(std::size_t unit, Queue reader) {
        if (_row.shards_parameters()) {
            require_leases(unit);
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
                if (!is_open(bucket)) {
                    gather(bucket);
                }
            }
        }
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            ++_users[bucket];
        }
        if (_row.shards_parameters()) {
            std::erase_if(_prefetched, [&](std::size_t bucket) { return _users[bucket] != 0; });
            if (_is_tracing) {
                follow_trace(unit);
            }
        }
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            Backend::wait(reader, _published[bucket],
                          _row.shards_parameters() ? Fence::weights_gathered
                                                   : Fence::weights_published);
        }
    }

    /// @brief The commands on `reader` so far were the last ones of one acquisition.
    void release(std::size_t unit, Queue reader) {
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            --_users[bucket];
        }
        Event const event = Backend::record(reader);
        if (_row.shards_parameters()) {
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
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

    /// @brief The communication queue waits until nobody reads the old weights any more (stages 0
    /// to 2; stage 3 reads copies).
    void wait_for_readers() {
        for (auto const& last : _readers) {
            Backend::wait(_queue, last.event, Fence::weights_read);
        }
    }

    /// @brief The same for the copies: nothing that was released is read any more.
    void wait_for_leases() {
        visit_all(_memories, [](auto const& memory) { memory.wait_for_leases(); });
    }

    /// @brief Makes what the owners updated readable for all: an all-gather in stages 1 and 2,
    /// where it is collective; nothing to send in stage 0, where every rank updated all, and in
    /// stage 3, where `acquire` gathers.
    void publish(std::size_t bucket) {
        if (_layout->elements(bucket) == 0 || _row.shards_parameters()) {
            return;
        }
        if (_row.shards_optimizer()) {
            with_memory(_layout->bucket(bucket).type,
                        [&](auto& memory) { memory.gather_replicas(bucket); });
        }
        _published[bucket] = Backend::record(_queue);
    }

    /// @brief Takes over what knows no layout: who reads, and the order of acquisitions. So a later
    /// step allocates no more than it did there.
    void go_on_from(ParameterScheduler& other) noexcept {
        _readers = std::move(other._readers);
        _trace = std::move(other._trace);
    }

    /// @brief Each bucket is sent when it was updated.
    [[nodiscard]] bool sends_updates() const noexcept {
        return _row.shards_optimizer() && !_row.shards_parameters() && _layout->world() > 1;
    }

    /// @brief Makes updated buckets readable that are not sent (stages 0 and 3, and one rank
    /// alone).
    void publish_unsent() {
        if (!_row.shards_parameters()) {
            Event const updated = Backend::record(_queue);
            for (Event& published : _published) {
                published = updated;
            }
        }
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const {
        std::size_t bytes = 0;
        visit_all(_memories, [&](auto const& memory) { bytes += memory.table_bytes(); });
        return bytes;
    }

    /// @brief Between steps, with nothing held: all that was enqueued is ordered before all that
    /// comes.
    void forget_events() noexcept {
        visit_all(_memories, [](auto& memory) { memory.forget_events(); });
        for (Event& event : _published) {
            event = {};
        }
        for (LastReader& last : _readers) {
            last.event = {};
        }
    }

    /// @brief Start of a micro-step: its acquisitions are compared with those of the last one.
    void begin_trace() noexcept {
        _position = 0;
        _is_tracing = true;
    }

    /// @brief What is acquired from now on, for instance by an evaluation, is none of a
    /// micro-step's and does not come next time.
    void end_trace() noexcept { _is_tracing = false; }

    /// @brief Frees what was gathered in advance and not asked for; the parameters are about to
    /// change, or a step is given up.
    void drop_prefetched() {
        for (std::size_t const bucket : _prefetched) {
            close_unused(bucket);
        }
        _prefetched.clear();
    }

    /// @brief A bucket of a unit that is held now, or none.
    [[nodiscard]] std::optional<std::size_t> held_bucket() const noexcept {
        for (std::size_t bucket = 0; bucket < _users.size(); ++bucket) {
            if (_users[bucket] != 0) {
                return bucket;
            }
        }
        return std::nullopt;
    }

private:
    struct LastReader {
        Queue queue;
        Event event;
    };

    template <std::size_t... Type>
    ParameterScheduler(EngineContext<Config> const& context, std::index_sequence<Type...>)
        : _layout(context.layout), _queue(context.queue), _rank(context.rank()), _row(context.row),
          _storage(context.options->storage), _prefetch(context.options->prefetch),
          _memories(TypeContext<Config>{context, Type}...), _published(_layout->buckets()),
          _users(_layout->buckets(), 0) {
        _prefetched.reserve(_layout->buckets()); // nothing is allocated inside a step
    }

    /// Calls `visit` with the memory of a parameter type.
    template <class Visitor>
    decltype(auto) with_memory(std::size_t type, Visitor&& visit) {
        return visit_at(_memories, type, visit);
    }

    [[nodiscard]] bool is_open(std::size_t bucket) const {
        return visit_at(_memories, _layout->bucket(bucket).type,
                        [&](auto const& memory) { return memory.is_open(bucket); });
    }

    void close(std::size_t bucket, Event const& last_use) {
        with_memory(_layout->bucket(bucket).type,
                    [&](auto& memory) { memory.close(bucket, last_use); });
    }

    void gather(std::size_t bucket) {
        with_memory(_layout->bucket(bucket).type, [&](auto& memory) { memory.gather(bucket); });
        _published[bucket] = Backend::record(_queue);
    }

    void broadcast_full() {
        for (std::size_t index = 0; index < _layout->parameters().size(); ++index) {
            with_memory(_layout->parameter(index).type,
                        [&](auto& memory) { memory.broadcast_full(index); });
        }
    }

    /// What a unit lacks of one type, and what is free of it.
    struct Need {
        std::size_t missing = 0;
        std::size_t free = 0;
        [[nodiscard]] bool is_met() const noexcept { return missing <= free; }
    };

    /// The first unmet need of a unit, or a met one.
    [[nodiscard]] Need need_of(std::size_t unit) const {
        Need need;
        for (std::size_t type = 0; type < Config::types && need.is_met(); ++type) {
            need = {0, visit_at(_memories, type,
                                [](auto const& memory) { return memory.free_leases(); })};
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
                need.missing += _layout->bucket(bucket).type == type && !is_open(bucket) ? 1 : 0;
            }
        }
        return need;
    }

    void close_unused(std::size_t bucket) {
        if (is_open(bucket) && _users[bucket] == 0) {
            close(bucket, Backend::record(_queue));
        }
    }

    [[nodiscard]] bool is_of(std::size_t unit, std::size_t bucket) const noexcept {
        for (std::size_t const own : _layout->unit_buckets(unit)) {
            if (own == bucket) {
                return true;
            }
        }
        return false;
    }

    /// Room for a unit, at the cost of what was gathered in advance for others.
    void require_leases(std::size_t unit) {
        if (!need_of(unit).is_met()) {
            std::erase_if(_prefetched, [&](std::size_t bucket) {
                bool const is_wanted = is_of(unit, bucket);
                if (!is_wanted) {
                    close_unused(bucket);
                }
                return !is_wanted;
            });
        }
        if (Need const need = need_of(unit); !need.is_met()) {
            throw_no_parameter_lease(*_layout, unit, _rank, need.missing, need.free);
        }
    }

    /// Remembers the order of acquisitions in a micro-step and gathers the unit that came next last
    /// time, if there is room.
    void follow_trace(std::size_t unit) {
        bool const is_expected = _position < _trace.size() && _trace[_position] == unit;
        if (!is_expected) {
            _trace.resize(_position);
            _trace.push_back(unit);
        }
        ++_position;
        if (!_prefetch || !is_expected || _position == _trace.size()
            || !need_of(_trace[_position]).is_met()) {
            return;
        }
        for (std::size_t const bucket : _layout->unit_buckets(_trace[_position])) {
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
    typename Config::template ForTypes<ParameterStore> _memories;
    List<Event> _published;          ///< per bucket: its last all-gather
    List<LastReader> _readers;       ///< per queue: its last reader of replicated parameters
    std::vector<std::size_t> _users; ///< per bucket: acquisitions that are held
    std::vector<std::size_t> _trace;
    std::vector<std::size_t> _prefetched;
    std::size_t _position = 0; ///< in the trace
    bool _is_tracing = false;
};

} // namespace ZERO_NAMESPACE::detail
