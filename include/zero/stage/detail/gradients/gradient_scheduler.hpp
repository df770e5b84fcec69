#pragma once

#include "../../../backend/fence.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gradient_source.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../parameter.hpp"
#include "../common/engine_context.hpp"
#include "../common/stores_by_type.hpp"
#include "../memory/bucket_pool.hpp"
#include "gradient_store.hpp"
#include "readiness.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Remembers which queue wrote gradients last, and makes other queues wait for it.
///
/// Used by the GradientScheduler. A bucket's gradients are its lease and the caller-owned memory of
/// its parameters.
template <class Backend>
class GradientWriters {
public:
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    /// @param communication the queue that reduces gradients
    /// @param buckets number of trainable buckets; others have no writer
    [[gnu::cold]] GradientWriters(Queue communication, std::size_t buckets)
        : _communication(communication), _of_bucket(buckets) {
        _of_micro_step.reserve(usual_writers);
    }

    void begin_micro_step() noexcept { _of_micro_step.clear(); }

    /// @brief Orders commands on `writer` after all noted writes to the bucket.
    void follow(std::size_t bucket, Queue writer) {
        if (_of_bucket[bucket].queue != writer) {
            Backend::wait(writer, _of_bucket[bucket].event, Fence::gradients_written);
        }
    }

    /// @brief The same for several buckets.
    void follow(std::span<std::size_t const> buckets, Queue writer) {
        for (std::size_t const bucket : buckets) {
            if (bucket < _of_bucket.size()) {
                follow(bucket, writer);
            }
        }
    }

    /// @brief Notes that commands on `writer` up to now wrote to these buckets. They must have
    /// followed the writes noted before. @return the point after these commands
    Event note(std::span<std::size_t const> buckets, Queue writer) {
        note_queue(writer);
        Event event = Backend::record(writer);
        for (std::size_t const bucket : buckets) {
            if (bucket < _of_bucket.size()) {
                _of_bucket[bucket] = {writer, event};
            }
        }
        return event;
    }

    /// @brief Notes the last write to one bucket.
    void note(std::size_t bucket, Queue writer, Event const& event) {
        _of_bucket[bucket] = {writer, event};
    }

    /// @brief Makes the communication queue wait for every queue of the micro-step and for
    /// `writer`, because a caller need not report every write.
    void join_all(Queue writer, Fence fence) {
        note_queue(writer);
        for (Write& last : _of_micro_step) {
            last.event = Backend::record(last.queue);
            Backend::wait(_communication, last.event, fence);
        }
    }

    /// @brief Makes every queue of the micro-step wait for an event, after which caller-owned
    /// gradients may be written again.
    void hold_all(Event const& event) const {
        for (Write const& last : _of_micro_step) {
            Backend::wait(last.queue, event, Fence::gradient_lease_reuse);
        }
    }

    /// @brief Drops events. Call it between steps, once all earlier commands are ordered before all
    /// later ones.
    void forget_events() noexcept {
        for (Write& write : _of_bucket) {
            write = {};
        }
        _of_micro_step.clear();
    }

    /// @brief Rethrows the exception that a command of the last micro-step threw on a caller's
    /// queue, if it is already known.
    void rethrow_failure() const {
        if constexpr (requires(Event const& event) { Backend::rethrow_failure(event); }) {
            for (Write const& last : _of_micro_step) {
                Backend::rethrow_failure(last.event);
            }
        }
    }

private:
    struct Write {
        Queue queue{};
        Event event{};
    };
    static constexpr std::size_t usual_writers = 4; ///< more queues allocate inside a step

    void note_queue(Queue writer) {
        for (Write const& last : _of_micro_step) {
            if (last.queue == writer) {
                return;
            }
        }
        _of_micro_step.push_back({writer, {}});
    }

    Queue _communication;
    List<Write> _of_bucket;     ///< per trainable bucket: its last write
    List<Write> _of_micro_step; ///< each queue once; the event is set by `join_all`
};

/// @brief Decides when each bucket of gradients is leased, complete and sent. One GradientStore per
/// parameter type holds and moves the data.
///
/// The engine calls it: `acquire`, `hand_over` and `set_ready` during the backward pass,
/// `end_micro_step` and `finish_step` at the ends. `launch` passes each complete bucket to its
/// store, which reduces it, or accumulates it until the last micro-step or `finish_step`.
template <class Config>
class GradientScheduler {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    [[gnu::cold]] explicit GradientScheduler(EngineContext<Config> const& context)
        : _layout(context.layout), _queue(context.queue), _rank(context.rank()),
          _schedule(context.schedule), _is_replicated(!context.row.shards_optimizer()),
          _has_one_micro_step(context.has_one_micro_step),
          _has_block(has_gradient_block(*context.layout)), _reads_callers(false),
          _is_collective_by_unit(context.row.shards_parameters()), _readiness(*context.layout),
          _stores(*context.layout,
                  [&]<class Types>(std::size_t type) {
                      return TypeContext<Config>{context, type};
                  }),
          _writers(context.queue, context.layout->trainable_buckets()),
          _deliveries(*context.layout, context.options->unused_parameters),
          _is_chosen(context.layout->parameters().size(), false), _claims(*context.layout) {
        if constexpr (Config::adds_in_tree) {
            _tree_steps = tree_of<Config>(context).micro_steps();
        }
        for (AnyParameter const& parameter : context.parameters) {
            _reads_callers = _reads_callers || parameter.gradient != nullptr;
        }
    }

    [[nodiscard]] Readiness const& readiness() const noexcept { return _readiness; }
    [[nodiscard]] GradientDeliveries& deliveries() noexcept { return _deliveries; }

    /// @brief Whether a step must have one micro-step: nothing accumulates its gradients.
    [[nodiscard]] bool reduces_once() const noexcept { return _has_one_micro_step; }

    /// @brief Makes the writers of gradients that became the sums wait for the update: `writer` and
    /// the queues that wrote the caller's block now, and later the first writer of a lease.
    void end_step(Queue writer, Event const& updated) {
        if (_has_block && _has_one_micro_step) {
            _writers.hold_all(updated);
            Backend::wait(writer, updated, Fence::gradient_lease_reuse);
        }
        _stores.each([&](auto& store) { store.end_step(updated); });
    }

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
        _claims.begin_micro_step();
        _is_last = is_last || _has_one_micro_step; // the only one is the last
        if constexpr (Config::adds_in_tree) {
            _is_last = _micro_steps + 1 == _tree_steps;
        }
        _writers.begin_micro_step();
    }

    /// @brief Leases the unit's gradients to commands on `writer`. The first lease of a gradient in
    /// a micro-step clears it if `is_zeroed`. @throws LateGradient, OutOfOrder
    void acquire(std::size_t unit, Queue writer, bool is_zeroed) {
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            require_not_launched(parameter);
        }
        require_leases(unit, _layout->unit_buckets(unit));
        _writers.follow(_layout->unit_buckets(unit), writer);
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            if (_layout->parameter(parameter).trainable) {
                begin_parameter(parameter, writer, is_zeroed);
            }
        }
        clear_chosen(_layout->unit_pieces(unit), _layout->unit_parameters(unit), writer);
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

    /// @brief Adds a transient gradient; its memory is free after the returned event, or when the
    /// owner is dropped.
    /// @param gradient as many elements of the gradient type as the parameter has
    /// @param owner of that memory, or null
    Event hand_over(std::size_t unit, std::size_t parameter, void const* gradient, Queue writer,
                    std::shared_ptr<void const> const& owner) {
        auto const buckets = _layout->parameter_buckets(parameter);
        require_not_launched(parameter);
        auto const pieces = _layout->parameter_pieces(parameter);
        require_leases(unit, buckets);
        _writers.follow(buckets, writer);
        _deliveries.take(parameter);
        bool const is_first = !_deliveries.is_begun(parameter); // its memory is not cleared
        if (owner != nullptr && is_first && _stores.of_parameter(parameter, [&](auto& store) {
                return store.hold(parameter, gradient, owner);
            })) {
            static_cast<void>(_deliveries.begin(parameter));
            _writers.note(buckets, writer);
            _holds = true;
            return {};
        }
        begin_parameter(parameter, writer, false);
        _stores.of_parameter(parameter, [&](auto& store) {
            for (PiecePosition const at : pieces) {
                store.add(at.bucket, _layout->piece(at), gradient, writer, is_first);
            }
        });
        return _writers.note(buckets, writer);
    }

    /// @brief Declares that the commands on `writer` so far complete the unit's gradients, and
    /// launches the buckets that are then complete. Collective in stage 3.
    void set_ready(std::size_t unit, Queue writer) {
        auto const buckets = _layout->unit_buckets(unit);
        require_leases(unit, buckets);
        _writers.follow(buckets, writer);
        _readiness.mark(unit);
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            if (is_in_callers_memory(parameter)) {
                _deliveries.report_callers(parameter);
            }
        }
        _writers.note(buckets, writer); // `launch` waits for it, once for each bucket
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
            launch(_readiness.next());
        }
        if (_reads_callers) {
            _writers.hold_all(Backend::record(_queue));
        }
        _deliveries.end_micro_step([&](std::size_t parameter) { return is_written(parameter); });
        _is_reduced = _is_last;
        ++_micro_steps;
    }

    /// @brief Completes the reductions of a step: reduces accumulated gradients if the last
    /// micro-step was not announced, gathers replicated sums that were not all-reduced, and adds
    /// the sums over replicas. A second call in a step is a no-op. Collective.
    void finish_step() {
        if (std::exchange(_is_finished, true)) {
            return;
        }
        bool const is_boundary = _schedule == ReductionSchedule::boundary;
        bool const gathers_sums = _is_replicated && !is_boundary
                                  && (Config::adds_in_tree || !(_micro_steps == 1 && _is_last));
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            _stores.of_bucket(bucket, [&](auto& store) {
                if (is_boundary && !_is_reduced) {
                    store.reduce_sum(bucket);
                } else if (gathers_sums) {
                    store.gather_sums(bucket);
                }
                if constexpr (GroupedCommunicator<typename Config::Communicator>) {
                    store.add_over_replicas(bucket);
                }
            });
        }
    }

    /// @brief Waits until gradients with an owner were read, and drops the owners.
    void release_held() {
        if (_holds) {
            _stores.each([](auto& store) { store.release_held(); });
        }
    }

    /// @brief Drops events. Call it between steps, once all earlier commands are ordered before all
    /// later ones.
    void forget_events() noexcept {
        _stores.each([](auto& store) { store.forget_events(); });
        _writers.forget_events();
    }

    /// @brief Calls `visit` with the errors of each parameter type, with `ErrorFeedback`.
    template <class Visit>
    void each_errors(Visit const& visit) {
        _stores.each([&](auto& store) { visit(store.errors()); });
    }

    /// @brief Cancels the micro-step: closes every lease.
    void cancel(Queue writer) {
        if constexpr (keeps_errors<Config>) {
            each_errors([](auto& errors) { errors.clear(); });
        }
        _writers.join_all(writer, Fence::gradient_lease_reuse);
        Event const written = Backend::record(_queue);
        _stores.each([&](auto& store) { store.end_held(written); });
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            if (is_open(bucket)) {
                close(bucket);
            }
            _stores.of_bucket(bucket, [&](auto& store) { store.unclaim(bucket); });
            // This includes caller-owned memory, whose writes need not have been reported.
            _writers.note(bucket, _queue, written);
        }
    }

    /// @brief Rethrows the exception that a command of the last micro-step threw on a caller's
    /// queue, if it is already known.
    void rethrow_failure() const { _writers.rethrow_failure(); }

private:
    [[nodiscard]] bool is_trainable(std::size_t bucket) const noexcept {
        return bucket < _layout->trainable_buckets();
    }

    [[nodiscard]] bool is_open(std::size_t bucket) const {
        return _stores.of_bucket(bucket, [&](auto const& store) { return store.is_open(bucket); });
    }

    /// Whether a gradient may have been written: in the engine's memory if its address was taken or
    /// it was handed over, in the caller's if it was leased or reported.
    [[nodiscard]] bool is_written(std::size_t parameter) const {
        return is_in_callers_memory(parameter)
                   ? _deliveries.is_begun(parameter) || _readiness.is_started(parameter)
                   : _deliveries.is_taken(parameter);
    }

    /// @name Chosen parameters
    /// A call first chooses the parameters to clear, so that one command serves all that are
    /// adjacent in a bucket.
    /// @{

    void choose(std::size_t parameter) noexcept {
        _is_chosen[parameter] = true;
        ++_chosen;
    }

    /// Clears the chosen parameters in each open bucket, then ends the choice.
    /// @param listed pieces of all that may be chosen, bucket by bucket
    /// @param parameters all that may be chosen
    void clear_chosen(std::span<PiecePosition const> listed,
                      std::span<std::size_t const> parameters, Queue writer) {
        if (std::exchange(_chosen, 0) == 0) {
            return;
        }
        for (std::size_t begin = 0, end = 0; begin < listed.size(); begin = end) {
            std::size_t const bucket = listed[begin].bucket;
            while (end < listed.size() && listed[end].bucket == bucket) {
                ++end;
            }
            if (is_trainable(bucket) && is_open(bucket)) {
                PieceIndices const pieces(listed.subspan(begin, end - begin));
                _stores.of_bucket(bucket, [&](auto& store) {
                    store.clear(bucket, writer, pieces,
                                [&](std::size_t parameter) { return _is_chosen[parameter] != 0; });
                });
            }
        }
        for (std::size_t const parameter : parameters) {
            _is_chosen[parameter] = false;
        }
    }

    /// @}

    void require_not_launched(std::size_t parameter) const {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            if (is_trainable(bucket) && _readiness.is_launched(bucket)) {
                throw_late_gradient(*_layout, parameter, bucket, _rank);
            }
        }
    }

    void require_leases(std::size_t unit, std::span<std::size_t const> buckets) {
        if (!_claims.claim(_stores, _readiness, buckets)) {
            throw_no_gradient_lease(*_layout, unit, _rank);
        }
    }

    /// Provides memory for a parameter's gradient to `writer`, which already follows the writes to
    /// its buckets. The first call of a micro-step clears it, or chooses it to be cleared later.
    void begin_parameter(std::size_t parameter, Queue writer, bool is_zeroed) {
        bool const is_callers = is_in_callers_memory(parameter);
        if (is_callers) {
            _deliveries.lease_callers(parameter, is_zeroed);
        } else {
            open_all(parameter, writer);
        }
        bool const is_begun = _deliveries.begin(parameter);
        if (is_begun && _holds) [[unlikely]] {
            _stores.of_parameter(parameter,
                                 [&](auto& store) { store.copy_held(parameter, writer); });
        }
        if (is_begun || !is_zeroed) {
            return;
        }
        if (is_callers) {
            _stores.of_parameter(parameter,
                                 [&](auto& store) { store.clear_callers(parameter, writer); });
        } else if (_stores.of_parameter(
                       parameter, [&](auto const& store) { return store.is_whole(parameter); })) {
            _stores.of_parameter(parameter,
                                 [&](auto& store) { store.clear_whole(parameter, writer); });
        } else {
            choose(parameter);
        }
    }

    /// Leases the parameter's buckets to commands on `writer`, which must already follow the writes
    /// noted so far. The caller of this function notes the new write.
    void open_all(std::size_t parameter, Queue writer) {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
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

    /// Passes a bucket to its store, which reduces or accumulates it, and closes its lease.
    /// Collective if the store reduces it.
    void launch(std::size_t bucket) {
        _readiness.set_launched(bucket);
        _writers.follow(bucket, _queue);
        _stores.of_bucket(bucket, [&](auto& store) {
            auto const written = [&](std::size_t parameter) { return is_written(parameter); };
            if (!store.take_in_place(bucket, _micro_steps == 0, _is_last, written)) {
                if (store.is_leased(bucket) && !store.is_open(bucket)) {
                    store.open(bucket, _queue);
                }
                store.prepare(bucket, PieceIndices(_layout->pieces(bucket).size()), written);
                if constexpr (Config::adds_in_tree) {
                    store.take_in_tree(bucket, _micro_steps);
                } else {
                    store.take(bucket, _micro_steps == 0, _is_last);
                }
            }
            if (store.reads_callers(bucket)) {
                _writers.note(bucket, _queue, Backend::record(_queue));
            }
        });
        if (is_open(bucket)) {
            close(bucket);
        }
    }

    FlatLayout const* _layout;
    Queue _queue;
    std::size_t _rank;
    ReductionSchedule _schedule;
    bool _is_replicated;
    bool _has_one_micro_step;    ///< a step has one micro-step
    std::size_t _tree_steps = 0; ///< micro-steps of a step, with `TreeReduction`
    bool _has_block;             ///< gradients are reduced in the caller's block
    bool _reads_callers;         ///< some gradients are read from caller-owned memory
    bool _holds = false;         ///< a gradient with an owner was kept where it lies
    bool _is_collective_by_unit; ///< a unit's reduction starts when the unit is ready; otherwise
                                 ///< buckets start in index order
    Readiness _readiness;
    StoresByType<Config, GradientStore> _stores;
    GradientWriters<Backend> _writers;
    mutable GradientDeliveries _deliveries; ///< handles are const
    std::vector<char> _is_chosen;           ///< per parameter, during a call
    std::size_t _chosen = 0;                ///< number of chosen parameters
    GradientClaims _claims;
    std::size_t _micro_steps = 0;
    bool _is_last = false;
    bool _is_reduced = false;
    bool _is_finished = false;
};

} // namespace ZERO_NAMESPACE::detail
