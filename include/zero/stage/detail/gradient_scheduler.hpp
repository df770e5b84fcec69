#pragma once

#include "../../backend/fence.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/placement.hpp"
#include "../../ops/arithmetic.hpp"
#include "engine_context.hpp"
#include "gradient_store.hpp"
#include "lease_errors.hpp"
#include "readiness.hpp"
#include "visit_tuple.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief When gradients are leased, complete, and sent: the way of every bucket through a
/// micro-step. What is done with their data is the business of one `GradientStore` for each
/// parameter type.
template <class Config>
class GradientScheduler {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    explicit GradientScheduler(EngineContext<Config> const& context)
        : GradientScheduler(context, std::make_index_sequence<Config::types>()) {}

    [[nodiscard]] Readiness const& readiness() const noexcept { return _readiness; }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const {
        std::size_t bytes = 0;
        visit_all(_memories, [&](auto const& memory) { bytes += memory.table_bytes(); });
        return bytes;
    }

    /// @brief The gradients of one parameter type.
    template <class Types>
    [[nodiscard]] GradientStore<Config, Types> const& memory() const noexcept {
        return std::get<GradientStore<Config, Types>>(_memories);
    }

    void begin_step() noexcept {
        _micro_steps = 0;
        _is_reduced = false;
        _is_finished = false;
    }

    void begin_micro_step(bool is_last) {
        _readiness.reset();
        _is_begun.assign(_is_begun.size(), false);
        _is_chosen.assign(_is_chosen.size(), false);
        _chosen = 0;
        _is_last = is_last;
        _writers.clear();
    }

    /// @brief Leases the unit's gradients to commands on `writer`: zero for who asks first in a
    /// micro-step, unless it wants them as they are. @throws LateGradient, OutOfOrder
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
        note_writes(_layout->unit_buckets(unit), writer);
    }

    [[nodiscard]] bool is_in_callers_memory(std::size_t parameter) const {
        return visit_at(_memories, _layout->parameter(parameter).type,
                        [&](auto const& memory) { return memory.callers(parameter) != nullptr; });
    }

    /// @brief Where commands of the backward pass add a parameter's gradient.
    template <class Types>
    [[nodiscard]] typename Types::Gradient* gradient(std::size_t parameter) const {
        auto const& memory = this->memory<Types>();
        auto const& spec = _layout->parameter(parameter);
        if (memory.callers(parameter) != nullptr || !spec.trainable || spec.elements == 0) {
            return memory.callers(parameter);
        }
        auto const buckets = _layout->parameter_buckets(parameter);
        if (buckets.size() != 1) {
            throw_split_gradient(*_layout, parameter);
        }
        for (Piece const& piece : _layout->pieces(buckets.front())) {
            if (piece.parameter == parameter) {
                return memory.at(buckets.front(), piece);
            }
        }
        return nullptr;
    }

    /// @brief Adds a transient gradient; its memory is free after the returned event.
    template <class G>
    Event hand_over(std::size_t unit, std::size_t parameter, G const* gradient, Queue writer) {
        require_not_launched(parameter);
        require_leases(unit, _layout->parameter_buckets(parameter));
        begin_parameter(parameter, writer, true);
        clear_chosen(_layout->parameter_buckets(parameter), {&parameter, 1}, writer);
        with_memory(_layout->parameter(parameter).type, [&](auto& memory) {
            if constexpr (std::is_same_v<typename std::decay_t<decltype(memory)>::G, G>) {
                for_pieces(parameter, [&](std::size_t bucket, Piece const& piece) {
                    memory.add(bucket, piece, gradient, writer);
                });
            }
        });
        return note_writes(_layout->parameter_buckets(parameter), writer);
    }

    /// @brief The commands on `writer` so far completed the unit's gradients. Launches what is
    /// ready. Collective in stage 3.
    void set_ready(std::size_t unit, Queue writer) {
        require_leases(unit, _layout->unit_buckets(unit));
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            if (is_trainable(bucket)) {
                follow_writes(bucket, writer);
            }
        }
        _readiness.mark(unit, [&](std::size_t parameter) {
            if (is_in_callers_memory(parameter)) {
                open_all(parameter, writer);
                choose(parameter);
            }
        });
        for_chosen(_layout->unit_buckets(unit), _layout->unit_parameters(unit),
                   [&](auto& memory, std::size_t bucket, auto const& is_chosen) {
                       memory.copy_callers(bucket, writer, is_chosen);
                   });
        Backend::wait(_queue, note_writes(_layout->unit_buckets(unit), writer),
                      Fence::gradients_written);
        if (_is_collective_by_unit) {
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
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

    /// @brief Launches all that is left; what nobody wrote counts as zero. Collective.
    void end_micro_step(Queue writer) {
        record_writers(writer, Fence::gradients_written);
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

    /// @brief What only the end of the accumulation can launch, if the last micro-step was not
    /// announced. Again in a step: nothing. Collective.
    void finish_step() {
        if (std::exchange(_is_finished, true)) {
            return;
        }
        bool const is_boundary = _schedule == ReductionSchedule::boundary;
        bool const gathers_sums =
            _is_replicated && !is_boundary && !(_micro_steps == 1 && _is_last);
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            with_memory(_layout->bucket(bucket).type, [&](auto& memory) {
                if (is_boundary && !_is_reduced) {
                    memory.reduce_sum(bucket);
                } else if (gathers_sums) {
                    memory.gather_sums(bucket);
                }
            });
        }
    }

    /// @brief Between steps: all that was enqueued is ordered before all that comes.
    void forget_events() noexcept {
        visit_all(_memories, [](auto& memory) { memory.forget_events(); });
        for (Write& write : _writes) {
            write = {};
        }
        _writers.clear();
    }

    /// @brief Gives up the micro-step: closes every lease.
    void cancel(Queue writer) {
        record_writers(writer, Fence::gradient_lease_reuse);
        Event const written = Backend::record(_queue);
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            if (is_open(bucket)) {
                close(bucket);
            }
            _writes[bucket] = {_queue,
                               written}; // also what was never reported, in the caller's memory
        }
    }

    /// @brief Throws what a command of the last micro-step threw on a queue that the caller named,
    /// as far as it is known.
    void rethrow_failure() const {
        if constexpr (requires(Event const& event) { Backend::rethrow_failure(event); }) {
            for (Write const& last : _writers) {
                Backend::rethrow_failure(last.event);
            }
        }
    }

private:
    struct Write {
        Queue queue{};
        Event event{};
    };
    static constexpr std::size_t usual_writers = 4; ///< more allocate in a step

    template <std::size_t... Type>
    GradientScheduler(EngineContext<Config> const& context, std::index_sequence<Type...>)
        : _layout(context.layout), _queue(context.queue), _rank(context.rank()),
          _schedule(context.schedule), _is_replicated(!context.row.shards_optimizer()),
          _is_collective_by_unit(context.row.shards_parameters()), _readiness(*context.layout),
          _memories(TypeContext<Config>{context, Type}...),
          _writes(context.layout->trainable_buckets()),
          _is_begun(context.layout->parameters().size(), false),
          _is_chosen(context.layout->parameters().size(), false) {
        _writers.reserve(usual_writers);
    }

    /// Calls `visit` with the memory of a parameter type.
    template <class Visitor>
    decltype(auto) with_memory(std::size_t type, Visitor&& visit) {
        return visit_at(_memories, type, visit);
    }

    template <class Visitor>
    void for_pieces(std::size_t parameter, Visitor&& visit) const {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            for (Piece const& piece : _layout->pieces(bucket)) {
                if (piece.parameter == parameter) {
                    visit(bucket, piece);
                }
            }
        }
    }

    [[nodiscard]] bool is_trainable(std::size_t bucket) const noexcept {
        return bucket < _writes.size();
    }

    [[nodiscard]] bool is_open(std::size_t bucket) const {
        return visit_at(_memories, _layout->bucket(bucket).type,
                        [&](auto const& memory) { return memory.is_open(bucket); });
    }

    void choose(std::size_t parameter) noexcept {
        _is_chosen[parameter] = true;
        ++_chosen;
    }

    /// Visits each bucket with the memory of its type and what was chosen; then nothing is chosen
    /// any more.
    /// @param parameters among which those are that may be chosen
    template <class Visitor>
    void for_chosen(std::span<std::size_t const> buckets, std::span<std::size_t const> parameters,
                    Visitor const& visit) {
        if (std::exchange(_chosen, 0) == 0) {
            return;
        }
        for (std::size_t const bucket : buckets) {
            if (is_trainable(bucket) && is_open(bucket)) {
                with_memory(_layout->bucket(bucket).type, [&](auto& memory) {
                    visit(memory, bucket,
                          [&](std::size_t parameter) { return _is_chosen[parameter] != 0; });
                });
            }
        }
        for (std::size_t const parameter : parameters) {
            _is_chosen[parameter] = false;
        }
    }

    void clear_chosen(std::span<std::size_t const> buckets, std::span<std::size_t const> parameters,
                      Queue writer) {
        for_chosen(buckets, parameters,
                   [&](auto& memory, std::size_t bucket, auto const& is_chosen) {
                       memory.clear(bucket, writer, is_chosen);
                   });
    }

    /// At the end of a micro-step: parameters in the caller's memory that some, but not all of
    /// their units wrote.
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
        for (Write const& last : _writers) {
            Backend::wait(writer, last.event, Fence::gradients_written);
        }
        if (!is_open(bucket)) {
            open(bucket, writer);
        }
        with_memory(_layout->bucket(bucket).type,
                    [&](auto& memory) { memory.copy_callers(bucket, writer, is_incomplete); });
        _writes[bucket] = {writer, Backend::record(writer)}; // for the launch, which comes next
    }

    void require_not_launched(std::size_t parameter) const {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            if (is_trainable(bucket) && _readiness.is_launched(bucket)) {
                throw_late_gradient(*_layout, parameter, bucket, _rank);
            }
        }
    }

    /// Buckets still need a lease in this micro-step. One of each type stays free, so that the end
    /// of a micro-step can always send zeros for a bucket that nobody opened.
    void require_leases(std::size_t unit, std::span<std::size_t const> buckets) const {
        for (std::size_t type = 0; type < Config::types; ++type) {
            std::size_t wanted = 0;
            for (std::size_t const bucket : buckets) {
                bool const is_wanted = is_trainable(bucket) && _layout->bucket(bucket).type == type
                                       && !is_open(bucket);
                wanted += is_wanted && !_readiness.is_launched(bucket) ? 1 : 0;
            }
            if (wanted != 0 && wanted + 1 > visit_at(_memories, type, [](auto const& memory) {
                                   return memory.free_leases();
                               })) {
                throw_no_gradient_lease(*_layout, unit, _rank);
            }
        }
    }

    /// Some unit leased the parameter's gradient, or wrote to the caller's memory and said so.
    [[nodiscard]] bool is_written(std::size_t parameter) const {
        return _is_begun[parameter]
               || (is_in_callers_memory(parameter) && _readiness.is_started(parameter));
    }

    /// Memory for a parameter's gradient. When it is the first of this micro-step, it is cleared,
    /// or chosen to be cleared together with others.
    void begin_parameter(std::size_t parameter, Queue writer, bool is_zeroed) {
        bool const is_callers = is_in_callers_memory(parameter);
        if (is_callers) {
            for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
                follow_writes(bucket, writer);
            }
        } else {
            open_all(parameter, writer);
        }
        if (std::exchange(_is_begun[parameter], true) || !is_zeroed) {
            return;
        }
        if (is_callers) {
            with_memory(_layout->parameter(parameter).type,
                        [&](auto& memory) { memory.clear_callers(parameter, writer); });
        } else {
            choose(parameter);
        }
    }

    /// Leases the parameter's buckets to commands on `writer`, behind those that wrote to them. Who
    /// calls this notes the write.
    void open_all(std::size_t parameter, Queue writer) {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            follow_writes(bucket, writer);
            if (!is_open(bucket)) {
                open(bucket, writer);
            }
        }
    }

    void open(std::size_t bucket, Queue writer) {
        with_memory(_layout->bucket(bucket).type,
                    [&](auto& memory) { memory.open(bucket, writer); });
    }

    /// Commands on `writer` come behind all that were noted for the bucket and for the caller's
    /// memory of its parameters.
    void follow_writes(std::size_t bucket, Queue writer) {
        if (_writes[bucket].queue != writer) {
            Backend::wait(writer, _writes[bucket].event, Fence::gradients_written);
        }
    }

    /// The commands on `writer` so far, which followed those noted before, wrote to these buckets
    /// or to the caller's memory of their parameters.
    Event note_writes(std::span<std::size_t const> buckets, Queue writer) {
        note_writer(writer);
        Event event = Backend::record(writer);
        for (std::size_t const bucket : buckets) {
            if (is_trainable(bucket)) {
                _writes[bucket] = {writer, event};
            }
        }
        return event;
    }

    void note_writer(Queue writer) {
        for (Write const& last : _writers) {
            if (last.queue == writer) {
                return;
            }
        }
        _writers.push_back({writer, {}});
    }

    /// The communication queue waits for all queues of the micro-step: not everybody reports what
    /// was written.
    void record_writers(Queue writer, Fence fence) {
        note_writer(writer);
        for (Write& last : _writers) {
            last.event = Backend::record(last.queue);
            Backend::wait(_queue, last.event, fence);
        }
    }

    void close(std::size_t bucket) {
        with_memory(_layout->bucket(bucket).type,
                    [&](auto& memory) { memory.close(bucket, Backend::record(_queue)); });
    }

    void launch(std::size_t bucket) {
        _readiness.set_launched(bucket);
        follow_writes(bucket, _queue);
        if (!is_open(bucket)) {
            open(bucket, _queue);
        }
        with_memory(_layout->bucket(bucket).type, [&](auto& memory) {
            memory.clear(bucket, _queue,
                         [&](std::size_t parameter) { return !is_written(parameter); });
            memory.take(bucket, _micro_steps == 0, _is_last);
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
    typename Config::template ForTypes<GradientStore> _memories;
    List<Write> _writes;  ///< per bucket: who wrote to its lease, or to the caller's memory of its
                          ///< parameters, last
    List<Write> _writers; ///< each queue of the micro-step once, with its last command when the
                          ///< micro-step ended
    std::vector<char> _is_begun; ///< per parameter: its gradient was leased, and cleared if wished,
                                 ///< in this micro-step
    std::vector<char>
        _is_chosen; ///< per parameter, while a call lasts: to be cleared or copied with others
    std::size_t _chosen = 0; ///< how many are
    std::size_t _micro_steps = 0;
    bool _is_last = false;
    bool _is_reduced = false;
    bool _is_finished = false;
};

} // namespace ZERO_NAMESPACE::detail
