#pragma once

#include "../backend/tables.hpp"
#include "../comm/communicator.hpp"
#include "bucket_pool.hpp"
#include "drain.hpp"
#include "lease_errors.hpp"
#include "options.hpp"
#include "placed.hpp"
#include "registration.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zero::detail {

/// @brief Parameters in every storage and placement: where they lie, how a unit is gathered and freed (stage 3), how updated shards are
/// published (stages 1 and 2), and how the values of rank 0 reach all.
template <class Config>
class ParameterStore {
public:
    using T = typename Config::Parameter;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Communicator = typename Config::Communicator;

    template <class G>
    ParameterStore(FlatLayout const& layout, Communicator& communicator, Queue queue, std::span<Parameter<T, G> const> parameters,
                   StageRow const& row, StageOptions<Config> const& options, LayoutTotals const& totals, MemoryResource& memory)
        : _layout(&layout), _communicator(&communicator), _queue(queue), _rank(static_cast<std::size_t>(communicator.rank())), _row(row),
          _storage(options.storage), _block(options.adopted_block.data()), _poison(options.poison), _prefetch(options.prefetch),
          _pool(totals.parameter_leases, totals.largest_gathered_bucket, layout.buckets(), memory, BufferKind::parameter_leases),
          _full(layout.parameters().size(), nullptr), _published(layout.buckets()), _users(layout.buckets(), 0), _drain(queue) {
        if (_storage == Storage::owned) {
            _placed = Placed<T>(layout, layout.buckets(), _rank, row.parameters, memory, BufferKind::parameters);
            clear();
        }
        for (std::size_t index = 0; index < parameters.size() && _storage != Storage::owned; ++index) {
            _full[index] = parameters[index].data;
        }
        if (!row.shards_parameters()) {
            make_tables();
        }
        _prefetched.reserve(layout.buckets()); // nothing is allocated inside a step
    }

    /// @brief Sends the registered values of rank 0 to all. Collective; the caller waits for the queue before it lets go of the values.
    template <class G>
    void broadcast_initial(std::span<Parameter<T, G> const> parameters) {
        if (_row.shards_parameters()) {
            for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
                T* const staging = _pool.open(bucket, _queue, Fence::parameter_lease_reuse);
                Backend::fill(_queue, staging, _layout->elements(bucket), T{});
                for (Piece const& piece : _layout->pieces(bucket)) {
                    write_initial(parameters[piece.parameter], staging + piece.bucket_begin, piece.elements);
                }
                _communicator->broadcast(staging, _layout->elements(bucket), 0, _queue, CollectiveTag{"initial values of bucket", bucket});
                Range const own = _layout->extent(bucket, _rank);
                _layout->for_slices(bucket, own, [&](Piece const& slice) {
                    Backend::copy_bytes(_queue, _placed.at(bucket, slice.bucket_begin), staging + slice.bucket_begin,
                                        slice.elements * sizeof(T));
                });
                _pool.close(bucket, Backend::record(_queue));
            }
        } else {
            for (std::size_t index = 0; index < parameters.size(); ++index) {
                if (_storage == Storage::owned) {
                    write_initial(parameters[index], _full[index], parameters[index].elements);
                }
            }
            broadcast_full();
        }
    }

    /// @brief Makes the replicas equal again after the caller changed values: those of rank 0, or of the owners where each rank could
    /// change its shard only. Collective.
    void synchronize_changes() {
        if (!_row.shards_parameters()) {
            if (!_row.shards_optimizer() || _storage != Storage::owned) {
                broadcast_full();
            } else {
                for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
                    publish(bucket);
                }
            }
        }
    }

    /// @brief The whole parameter in stages 0 to 2.
    [[nodiscard]] T* full(std::size_t parameter) const noexcept { return _full[parameter]; }

    /// @brief A slice that this rank holds: inside its extent in stage 3, any in the others.
    [[nodiscard]] T* slice(std::size_t bucket, Piece const& slice) const noexcept {
        return _row.shards_parameters() ? _placed.at(bucket, slice.bucket_begin) : _full[slice.parameter] + slice.parameter_begin;
    }

    /// @brief A parameter of a gathered unit in stage 3; of any unit in the others.
    [[nodiscard]] T const* gathered(std::size_t parameter) const noexcept {
        if (_row.shards_parameters()) {
            std::size_t const bucket = _layout->parameter_buckets(parameter).front();
            for (Piece const& piece : _layout->pieces(bucket)) {
                if (piece.parameter == parameter) {
                    return _pool.at(bucket) + piece.bucket_begin;
                }
            }
            return nullptr;
        } else {
            return _full[parameter];
        }
    }

    /// @brief Makes a unit's parameters readable for commands on `reader`. Stage 3: collective, gathers what is not there yet.
    /// @throws OutOfOrder when more units are held than there are leases for; nothing was changed then.
    void acquire(std::size_t unit, Queue reader) {
        if (_row.shards_parameters()) {
            require_leases(unit);
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
                if (!_pool.is_open(bucket)) {
                    gather(bucket);
                }
                ++_users[bucket];
            }
            follow_trace(unit);
        }
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            Backend::wait(reader, _published[bucket], _row.shards_parameters() ? Fence::weights_gathered : Fence::weights_published);
        }
    }

    /// @brief The commands on `reader` so far were the last ones of one acquisition.
    void release(std::size_t unit, Queue reader) {
        Event const event = Backend::record(reader);
        if (_row.shards_parameters()) {
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
                if (--_users[bucket] != 0) {
                    Backend::wait(_queue, event, Fence::weights_read);
                    continue;
                }
                if (_poison) {
                    Backend::wait(_queue, event, Fence::weights_read);
                    Backend::fill(_queue, _pool.at(bucket), _layout->elements(bucket),
                                  from_float<T>(std::numeric_limits<float>::quiet_NaN()));
                    _pool.close(bucket, Backend::record(_queue));
                } else {
                    _pool.close(bucket, event);
                }
            }
        } else {
            for (auto& last : _readers) {
                if (last.queue == reader) {
                    last.event = event;
                    return;
                }
            }
            _readers.push_back({reader, event});
        }
    }

    /// @brief The communication queue waits until nobody reads the old weights any more (stages 0 to 2; stage 3 reads copies).
    void wait_for_readers() {
        for (auto const& last : _readers) {
            Backend::wait(_queue, last.event, Fence::weights_read);
        }
    }

    /// @brief Makes what the owners updated readable for all: an all-gather in stages 1 and 2, where it is collective; nothing to send
    /// in stage 0, where every rank updated all, and in stage 3, where `acquire` gathers.
    void publish(std::size_t bucket) {
        auto const cuts = _layout->cuts(bucket);
        if (cuts.back() == 0 || _row.shards_parameters()) {
            return;
        }
        if (_row.shards_optimizer()) {
            gather_replicas(bucket, cuts);
        }
        _published[bucket] = Backend::record(_queue);
    }

    /// @brief Start of a micro-step: its acquisitions are compared with those of the last one.
    void restart_trace() noexcept { _position = 0; }

    /// @brief Frees what was gathered in advance and not asked for; the parameters are about to change, or a step is given up.
    void drop_prefetched() {
        for (std::size_t const bucket : _prefetched) {
            if (_pool.is_open(bucket) && _users[bucket] == 0) {
                _pool.close(bucket, Backend::record(_queue));
            }
        }
        _prefetched.clear();
    }

    /// @brief Some unit is held now (stage 3).
    [[nodiscard]] bool is_held() const noexcept {
        for (std::size_t const users : _users) {
            if (users != 0) {
                return true;
            }
        }
        return false;
    }

private:
    struct LastReader {
        Queue queue;
        Event event;
    };

    void clear() {
        Backend::fill(_queue, _placed.data(), _placed.size(), _poison ? from_float<T>(std::numeric_limits<float>::quiet_NaN()) : T{});
        for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
            Range const held = _row.shards_parameters() ? _layout->extent(bucket, _rank) : Range{0, _layout->elements(bucket)};
            _layout->for_slices(bucket, held, [&](Piece const& slice) {
                Backend::fill(_queue, _placed.at(bucket, slice.bucket_begin), slice.elements, T{});
            });
        }
    }

    void make_tables() {
        _tables.resize(_layout->buckets());
        for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
            for (Piece const& piece : _layout->pieces(bucket)) {
                if (_storage == Storage::owned) {
                    _full[piece.parameter] = _placed.at(bucket, piece.bucket_begin);
                } else if (piece.elements != 0) { // an empty tensor may have no address
                    _tables[bucket].push_back({_full[piece.parameter] + piece.parameter_begin, piece.bucket_begin, piece.elements});
                }
            }
        }
    }

    template <class G>
    void write_initial(Parameter<T, G> const& parameter, T* out, std::size_t elements) {
        if (_rank != 0 || elements == 0) {
            return;
        }
        if (parameter.initialize) {
            Backend::synchronize(Backend::record(_queue));
            parameter.initialize(0, std::span<T>(out, elements));
        } else if (parameter.data != nullptr) {
            Backend::copy_bytes(_queue, out, parameter.data, elements * sizeof(T));
        }
    }

    void broadcast_full() {
        for (std::size_t index = 0; index < _full.size(); ++index) {
            if (_layout->parameter(index).elements != 0) {
                _communicator->broadcast(_full[index], _layout->parameter(index).elements, 0, _queue,
                                         CollectiveTag{"values of parameter", index});
            }
        }
    }

    /// All-gathers the extents of a bucket into the replicas, through a lease where these are not as contiguous as the bucket.
    void gather_replicas(std::size_t bucket, std::span<std::size_t const> cuts) {
        CollectiveTag const tag{"parameters of bucket", bucket};
        bool const is_copied = _storage == Storage::scattered || _layout->bucket(bucket).is_staged;
        if (is_copied) {
            T* const staging = _pool.open(bucket, _queue, Fence::parameter_lease_reuse);
            Range const own = _layout->extent(bucket, _rank);
            _layout->for_slices(bucket, own, [&](Piece const& slice) {
                Backend::copy_bytes(_queue, staging + slice.bucket_begin, this->slice(bucket, slice), slice.elements * sizeof(T));
            });
            _communicator->all_gather(staging + own.begin, staging, cuts, _queue, tag);
            Backend::copy_from_bucket(_queue, std::span<CopySlice<T> const>(_tables[bucket]), static_cast<T const*>(staging));
            _pool.close(bucket, Backend::record(_queue));
        } else {
            T* const base = _storage == Storage::owned ? _placed.at(bucket, 0) : _block + _layout->bucket(bucket).block_begin;
            _communicator->all_gather(base + cuts[_rank], base, cuts, _queue, tag);
        }
    }

    void gather(std::size_t bucket) {
        T* const lease = _pool.open(bucket, _queue, Fence::parameter_lease_reuse);
        auto const cuts = _layout->cuts(bucket);
        if (cuts.back() != 0) {
            _communicator->all_gather(_placed.at(bucket, cuts[_rank]), lease, cuts, _queue, CollectiveTag{"parameters of bucket", bucket});
        }
        _published[bucket] = Backend::record(_queue);
    }

    [[nodiscard]] std::size_t missing(std::size_t unit) const {
        std::size_t count = 0;
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            count += _pool.is_open(bucket) ? 0 : 1;
        }
        return count;
    }

    void require_leases(std::size_t unit) {
        if (missing(unit) > _pool.free_leases()) {
            for (std::size_t const bucket : _layout->unit_buckets(unit)) { // keep what was gathered in advance for this unit
                std::erase(_prefetched, bucket);
            }
            drop_prefetched();
        }
        if (missing(unit) > _pool.free_leases()) {
            throw_no_parameter_lease(*_layout, unit, _rank, missing(unit), _pool.free_leases());
        }
    }

    /// Remembers the order of acquisitions in a micro-step and gathers the unit that came next last time, if there is room.
    void follow_trace(std::size_t unit) {
        std::erase_if(_prefetched, [&](std::size_t bucket) { return _users[bucket] != 0; });
        bool const is_expected = _position < _trace.size() && _trace[_position] == unit;
        if (!is_expected) {
            _trace.resize(_position);
            _trace.push_back(unit);
        }
        ++_position;
        if (!_prefetch || !is_expected || _position == _trace.size() || missing(_trace[_position]) > _pool.free_leases()) {
            return;
        }
        for (std::size_t const bucket : _layout->unit_buckets(_trace[_position])) {
            if (!_pool.is_open(bucket)) {
                gather(bucket);
                _prefetched.push_back(bucket);
            }
        }
    }

    FlatLayout const* _layout;
    Communicator* _communicator;
    Queue _queue;
    std::size_t _rank;
    StageRow _row;
    Storage _storage;
    T* _block;
    bool _poison;
    bool _prefetch;
    BucketPool<T, Backend> _pool;
    Placed<T> _placed;
    std::vector<T*> _full;
    std::vector<std::vector<CopySlice<T>>> _tables;
    std::vector<Event> _published;    ///< per bucket: its last all-gather
    std::vector<LastReader> _readers; ///< per queue: its last reader of replicated parameters
    std::vector<std::size_t> _users;  ///< per bucket: acquisitions that are held
    std::vector<std::size_t> _trace;
    std::vector<std::size_t> _prefetched;
    std::size_t _position = 0;
    Drain<Backend> _drain;
};

} // namespace zero::detail
