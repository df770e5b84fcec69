#pragma once

#include "../../backend/fence.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/placement.hpp"
#include "engine_context.hpp"
#include "gradient_deliveries.hpp"
#include "gradient_store.hpp"
#include "gradient_writers.hpp"
#include "lease_errors.hpp"
#include "readiness.hpp"
#include "stores_by_type.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Decides when each bucket of gradients is leased, complete and sent. One GradientStore per
/// parameter type holds and moves the data.
///
/// The engine calls it: `acquire`, `hand_over` and `set_ready` during the backward pass,
/// `end_micro_step` and `finish_step` at the ends. `launch` starts the reduction of a bucket.
template <class Config>
class GradientScheduler {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    [[gnu::cold]] explicit GradientScheduler(EngineContext<Config> const& context)
        : _layout(context.layout), _queue(context.queue), _rank(context.rank()),
          _schedule(context.schedule), _is_replicated(!context.row.shards_optimizer()),
          _is_collective_by_unit(context.row.shards_parameters()), _readiness(*context.layout),
          _stores(*context.layout,
                  [&]<class Types>(std::size_t type) {
                      return TypeContext<Config>{context, type};
                  }),
          _writers(context.queue, context.layout->trainable_buckets()),
          _deliveries(*context.layout), _is_chosen(context.layout->parameters().size(), false) {}

    [[nodiscard]] Readiness const& readiness() const noexcept { return _readiness; }
    [[nodiscard]] GradientEvidence evidence() const noexcept { return _deliveries.evidence(); }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const { return _stores.table_bytes(); }

    /// @brief The gradients of one parameter type.
    template <class Types>
    [[nodiscard]] GradientStore<Config, Types> const& store() const noexcept {
        return _stores.template get<Types>();
    }

    void begin_step() noexcept {
        _deliveries.begin_step();
        _micro_steps = 0;
        _is_reduced = false;
        _is_finished = false;
    }

    void begin_micro_step(bool is_last) {
        _readiness.reset();
        _deliveries.begin_micro_step();
        _is_chosen.assign(_is_chosen.size(), false);
        _chosen = 0;
        _is_last = is_last;
        _writers.begin_micro_step();
    }

    /// @brief Leases the unit's gradients to commands on `writer`. The first call in a micro-step
    /// clears them if `is_zeroed`. @throws LateGradient, OutOfOrder
    void acquire(std::size_t unit, Queue writer, bool is_zeroed) {
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            require_not_launched(parameter);
        }
        require_leases(unit, _layout->unit_buckets(unit));
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            if (_layout->parameter(parameter).trainable) {
                begin_parameter(parameter, writer, is_zeroed);
            }
        }
        clear_chosen(_layout->unit_buckets(unit), _layout->unit_parameters(unit), writer);
        _writers.note(_layout->unit_buckets(unit), writer);
    }

    [[nodiscard]] bool is_in_callers_memory(std::size_t parameter) const {
        return _stores.of_parameter(
            parameter, [&](auto const& store) { return store.callers(parameter) != nullptr; });
    }

    /// @brief The memory to which commands of the backward pass add a parameter's gradient.
    template <class Types>
    [[nodiscard]] typename Types::Gradient* gradient(std::size_t parameter) const {
        auto* const address = store<Types>().gradient(parameter);
        _deliveries.take(parameter, address != nullptr && !store<Types>().callers(parameter));
        return address;
    }

    /// @brief Adds a transient gradient; its memory is free after the returned event.
    /// @param gradient as many elements of the gradient type as the parameter has
    Event hand_over(std::size_t unit, std::size_t parameter, void const* gradient, Queue writer) {
        auto const buckets = _layout->parameter_buckets(parameter);
        require_not_launched(parameter);
        require_leases(unit, buckets);
        _deliveries.take(parameter);
        begin_parameter(parameter, writer, true);
        clear_chosen(buckets, {&parameter, 1}, writer);
        _stores.of_parameter(parameter, [&](auto& store) {
            for (std::size_t const bucket : buckets) {
                for (Piece const& piece : _layout->pieces(bucket)) {
                    if (piece.parameter == parameter) {
                        store.add(bucket, piece, gradient, writer);
                    }
                }
            }
        });
        return _writers.note(buckets, writer);
    }

    /// @brief The commands on `writer` so far completed the unit's gradients. Launches complete
    /// buckets. Collective in stage 3.
    void set_ready(std::size_t unit, Queue writer) {
        auto const buckets = _layout->unit_buckets(unit);
        require_leases(unit, buckets);
        for (std::size_t const bucket : buckets) {
            if (is_trainable(bucket)) {
                _writers.follow(bucket, writer);
            }
        }
        _readiness.mark(unit, [&](std::size_t parameter) {
            if (is_in_callers_memory(parameter)) {
                open_all(parameter, writer);
                choose(parameter);
                _deliveries.report_callers(parameter);
            }
        });
        for_chosen(buckets, _layout->unit_parameters(unit),
                   [&](auto& store, std::size_t bucket, auto const& is_chosen) {
                       store.copy_callers(bucket, writer, is_chosen);
                   });
        Backend::wait(_queue, _writers.note(buckets, writer), Fence::gradients_written);
        if (_is_collective_by_unit) {
            for (std::size_t const bucket : buckets) {
                if (is_trainable(bucket) && _readiness.is_complete(bucket)
                    && !_readiness.is_launched(bucket)) {
                    launch(bucket);
                }
            }
        } else {
            while (_readiness.next() < _layout->trainable_buckets()
                   && _readiness.is_complete(_readiness.next())) {
                launch(_readiness.next());
            }
        }
    }

    /// @brief Launches all remaining buckets; a gradient that was not written counts as zero.
    /// Collective.
    void end_micro_step(Queue writer) {
        _writers.join_all(writer, Fence::gradients_written);
        while (_readiness.next() < _layout->trainable_buckets()) {
            std::size_t const bucket = _readiness.next();
            if (!_readiness.is_complete(bucket)) {
                copy_incomplete(bucket, writer);
            }
            launch(bucket);
        }
        _is_reduced = _is_last;
        ++_micro_steps;
    }

    /// @brief Reduces what waited for the end of the accumulation because the last micro-step was
    /// not announced. A second call in a step is a no-op. Collective.
    void finish_step() {
        if (std::exchange(_is_finished, true)) {
            return;
        }
        bool const is_boundary = _schedule == ReductionSchedule::boundary;
        bool const gathers_sums =
            _is_replicated && !is_boundary && !(_micro_steps == 1 && _is_last);
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            _stores.of_bucket(bucket, [&](auto& store) {
                if (is_boundary && !_is_reduced) {
                    store.reduce_sum(bucket);
                } else if (gathers_sums) {
                    store.gather_sums(bucket);
                }
            });
        }
    }

    /// @brief Between steps: everything enqueued so far is ordered before everything that follows.
    void forget_events() noexcept {
        _stores.each([](auto& store) { store.forget_events(); });
        _writers.forget_events();
    }

    /// @brief Gives up the micro-step: closes every lease.
    void cancel(Queue writer) {
        _writers.join_all(writer, Fence::gradient_lease_reuse);
        Event const written = Backend::record(_queue);
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            if (is_open(bucket)) {
                close(bucket);
            }
            // Also for caller-owned memory, whose writes need not have been reported.
            _writers.note(bucket, _queue, written);
        }
    }

    /// @brief Throws what a command of the last micro-step threw on a caller's queue, if it is
    /// known.
    void rethrow_failure() const { _writers.rethrow_failure(); }

private:
    [[nodiscard]] bool is_trainable(std::size_t bucket) const noexcept {
        return bucket < _layout->trainable_buckets();
    }

    [[nodiscard]] bool is_open(std::size_t bucket) const {
        return _stores.of_bucket(bucket, [&](auto const& store) { return store.is_open(bucket); });
    }

    /// In memory of the engine: its address was taken. Caller-owned: leased or reported.
    [[nodiscard]] bool is_written(std::size_t parameter) const {
        return is_in_callers_memory(parameter)
                   ? _deliveries.is_begun(parameter) || _readiness.is_started(parameter)
                   : _deliveries.is_taken(parameter);
    }

    /// @name Chosen parameters
    /// A call first chooses the parameters to clear or copy, so that one command serves all that
    /// are adjacent in a bucket.
    /// @{

    void choose(std::size_t parameter) noexcept {
        _is_chosen[parameter] = true;
        ++_chosen;
    }

    /// Calls `visit(store, bucket, is_chosen)` for each open bucket, then clears the choice.
    /// @param parameters all that may be chosen
    template <class Visitor>
    void for_chosen(std::span<std::size_t const> buckets, std::span<std::size_t const> parameters,
                    Visitor const& visit) {
        if (std::exchange(_chosen, 0) == 0) {
            return;
        }
        auto const is_chosen = [&](std::size_t parameter) { return _is_chosen[parameter] != 0; };
        for (std::size_t const bucket : buckets) {
            if (is_trainable(bucket) && is_open(bucket)) {
                _stores.of_bucket(bucket, [&](auto& store) { visit(store, bucket, is_chosen); });
            }
        }
        for (std::size_t const parameter : parameters) {
            _is_chosen[parameter] = false;
        }
    }

    void clear_chosen(std::span<std::size_t const> buckets, std::span<std::size_t const> parameters,
                      Queue writer) {
        for_chosen(buckets, parameters,
                   [&](auto& store, std::size_t bucket, auto const& is_chosen) {
                       store.clear(bucket, writer, is_chosen);
                   });
    }

    /// @}

    /// At the end of a micro-step: copies caller-owned gradients that some, not all units wrote.
    void copy_incomplete(std::size_t bucket, Queue writer) {
        auto const is_incomplete = [&](std::size_t parameter) {
            return is_in_callers_memory(parameter) && is_written(parameter)
                   && !_readiness.is_parameter_ready(parameter);
        };
        bool is_any = false;
        for (Piece const& piece : _layout->pieces(bucket)) {
            is_any = is_any || is_incomplete(piece.parameter);
        }
        if (!is_any) {
            return;
        }
        _deliveries.report_callers(_layout->pieces(bucket).front().parameter);
        _writers.wait_for_all(writer);
        if (!is_open(bucket)) {
            open(bucket, writer);
        }
        _stores.of_bucket(bucket,
                          [&](auto& store) { store.copy_callers(bucket, writer, is_incomplete); });
        _writers.note(bucket, writer, Backend::record(writer)); // for the launch that follows
    }

    void require_not_launched(std::size_t parameter) const {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            if (is_trainable(bucket) && _readiness.is_launched(bucket)) {
                throw_late_gradient(*_layout, parameter, bucket, _rank);
            }
        }
    }

    /// Checks that the buckets still closed in this micro-step get a lease. One lease of each type
    /// stays free, so that the end of a micro-step can always send zeros for a bucket without
    /// gradients.
    void require_leases(std::size_t unit, std::span<std::size_t const> buckets) const {
        for (std::size_t type = 0; type < Config::types; ++type) {
            std::size_t wanted = 0;
            for (std::size_t const bucket : buckets) {
                bool const is_wanted = is_trainable(bucket) && _layout->bucket(bucket).type == type
                                       && !is_open(bucket);
                wanted += is_wanted && !_readiness.is_launched(bucket) ? 1 : 0;
            }
            auto const free_leases = [](auto const& store) { return store.free_leases(); };
            if (wanted != 0 && wanted + 1 > _stores.of_type(type, free_leases)) {
                throw_no_gradient_lease(*_layout, unit, _rank);
            }
        }
    }

    /// Provides memory for a parameter's gradient. The first call of a micro-step clears it, or
    /// chooses it to be cleared together with others.
    void begin_parameter(std::size_t parameter, Queue writer, bool is_zeroed) {
        bool const is_callers = is_in_callers_memory(parameter);
        if (is_callers) {
            _deliveries.lease_callers(parameter, is_zeroed);
            for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
                _writers.follow(bucket, writer);
            }
        } else {
            open_all(parameter, writer);
        }
        if (_deliveries.begin(parameter) || !is_zeroed) {
            return;
        }
        if (is_callers) {
            _stores.of_parameter(parameter,
                                 [&](auto& store) { store.clear_callers(parameter, writer); });
        } else {
            choose(parameter);
        }
    }

    /// Leases the parameter's buckets to commands on `writer`, after the writes noted so far. The
    /// caller notes the new write.
    void open_all(std::size_t parameter, Queue writer) {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            _writers.follow(bucket, writer);
            if (!is_open(bucket)) {
                open(bucket, writer);
            }
        }
    }

    void open(std::size_t bucket, Queue writer) {
        _stores.of_bucket(bucket, [&](auto& store) { store.open(bucket, writer); });
    }

    void close(std::size_t bucket) {
        _stores.of_bucket(bucket,
                          [&](auto& store) { store.close(bucket, Backend::record(_queue)); });
    }

    /// Starts the reduction of a bucket and closes its lease. Collective.
    void launch(std::size_t bucket) {
        _readiness.set_launched(bucket);
        _writers.follow(bucket, _queue);
        if (!is_open(bucket)) {
            open(bucket, _queue);
        }
        _stores.of_bucket(bucket, [&](auto& store) {
            store.clear(bucket, _queue,
                        [&](std::size_t parameter) { return !is_written(parameter); });
            store.take(bucket, _micro_steps == 0, _is_last);
        });
        close(bucket);
    }

    FlatLayout const* _layout;
    Queue _queue;
    std::size_t _rank;
    ReductionSchedule _schedule;
    bool _is_replicated;
    bool _is_collective_by_unit; ///< a unit's reduction starts when the unit is ready; otherwise
                                 ///< buckets start in index order
    Readiness _readiness;
    StoresByType<Config, GradientStore> _stores;
    GradientWriters<Backend> _writers;
    mutable GradientDeliveries _deliveries; ///< handles are const
    std::vector<char> _is_chosen;           ///< per parameter, during a call
    std::size_t _chosen = 0;                ///< number of chosen parameters
    std::size_t _micro_steps = 0;
    bool _is_last = false;
    bool _is_reduced = false;
    bool _is_finished = false;
};

} // namespace ZERO_NAMESPACE::detail
