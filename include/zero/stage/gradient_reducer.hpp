#pragma once

#include "../backend/tables.hpp"
#include "../comm/communicator.hpp"
#include "bucket_pool.hpp"
#include "drain.hpp"
#include "lease_errors.hpp"
#include "options.hpp"
#include "placed.hpp"
#include "readiness.hpp"
#include "registration.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zero::detail {

/// @brief Gradients from the backward pass to the reduced shard: leases of the micro-step, local or reduced accumulation, the wire.
///
/// Every number is rounded at the same places in every stage: written in the gradient type; summed over ranks in float and rounded once to
/// the communication type; added over micro-steps in the accumulation type. Under the boundary schedule the addition comes before the sum.
template <class Config>
class GradientReducer {
public:
    using G = typename Config::Gradient;
    using C = typename Config::Communication;
    using A = typename Config::Accumulation;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Communicator = typename Config::Communicator;

    /// @brief Gradients are converted into a buffer of their own before they are sent, at least at one place.
    static constexpr bool has_wire(ReductionSchedule schedule) noexcept {
        return !std::is_same_v<G, C> || (schedule == ReductionSchedule::boundary && !std::is_same_v<A, C>);
    }

    template <class T>
    GradientReducer(FlatLayout const& layout, Communicator& communicator, Queue queue, std::span<Parameter<T, G> const> parameters,
                    StageRow const& row, ReductionSchedule schedule, StageOptions<Config> const& options, LayoutTotals const& totals,
                    MemoryResource& memory)
        : _layout(&layout), _communicator(&communicator), _queue(queue), _rank(static_cast<std::size_t>(communicator.rank())), _row(row),
          _schedule(schedule), _predivide(predivide_factor<C>(options.reduction, layout.world())), _poison(options.poison),
          _readiness(layout),
          _pool(totals.gradient_leases, totals.largest_trainable_bucket, layout.trainable_buckets(), memory, BufferKind::gradient_leases),
          _sum(layout, layout.trainable_buckets(), _rank, row.accumulation_buffer, memory, BufferKind::gradients),
          _wire(memory, has_wire(schedule) ? totals.largest_trainable_bucket : 0, BufferKind::wire), _writes(layout.trainable_buckets()),
          _is_begun(layout.parameters().size(), false), _drain(queue) {
        for (auto const& parameter : parameters) {
            _callers.push_back(parameter.gradient);
        }
        Backend::fill(_queue, _sum.data(), _sum.size(), A{});
    }

    [[nodiscard]] Readiness const& readiness() const noexcept { return _readiness; }
    [[nodiscard]] float predivide() const noexcept { return _predivide; }
    [[nodiscard]] ReductionSchedule schedule() const noexcept { return _schedule; }

    /// @brief Element `index` of a bucket of reduced gradients: own extents, or all in stage 0.
    [[nodiscard]] A* reduced(std::size_t bucket, std::size_t index) const noexcept { return _sum.at(bucket, index); }

    void begin_step() noexcept {
        _micro_steps = 0;
        _is_reduced = false;
        _is_finished = false;
    }

    void begin_micro_step(bool is_last) {
        _readiness.reset();
        _is_begun.assign(_is_begun.size(), false);
        _is_last = is_last;
    }

    /// @brief Leases the unit's gradients to commands on `writer`. See `open`. @throws LateGradient, OutOfOrder
    void acquire(std::size_t unit, Queue writer, bool is_zeroed) {
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            require_not_launched(parameter);
        }
        require_leases(unit, count_closed(_layout->unit_buckets(unit)));
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            if (_layout->parameter(parameter).trainable) {
                begin_parameter(parameter, writer, is_zeroed);
            }
        }
    }

    [[nodiscard]] bool is_in_callers_memory(std::size_t parameter) const { return _callers[parameter] != nullptr; }

    /// @brief Where commands of the backward pass add a parameter's gradient.
    [[nodiscard]] G* gradient(std::size_t parameter) const {
        auto const& spec = _layout->parameter(parameter);
        if (_callers[parameter] != nullptr || !spec.trainable || spec.elements == 0) {
            return _callers[parameter];
        }
        auto const buckets = _layout->parameter_buckets(parameter);
        if (buckets.size() != 1) {
            throw_split_gradient(*_layout, parameter);
        }
        for (Piece const& piece : _layout->pieces(buckets.front())) {
            if (piece.parameter == parameter) {
                return _pool.at(buckets.front()) + piece.bucket_begin;
            }
        }
        return nullptr;
    }

    /// @brief Adds a transient gradient; its memory is free after the returned event.
    Event hand_over(std::size_t unit, std::size_t parameter, G const* gradient, Queue writer) {
        require_not_launched(parameter);
        require_leases(unit, count_closed(_layout->parameter_buckets(parameter)));
        begin_parameter(parameter, writer, true);
        for_pieces(parameter, [&](std::size_t bucket, Piece const& piece) {
            Backend::accumulate(writer, _pool.at(bucket) + piece.bucket_begin, gradient + piece.parameter_begin, piece.elements);
        });
        return Backend::record(writer);
    }

    /// @brief The commands on `writer` so far completed the unit's gradients. Launches what is ready. Collective in stage 3.
    void set_ready(std::size_t unit, Queue writer) {
        require_leases(unit, count_closed(_layout->unit_buckets(unit)));
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            if (is_trainable(bucket) && _pool.is_open(bucket)) {
                Backend::wait(writer, _writes[bucket].event, Fence::gradients_written);
            }
        }
        _readiness.mark(unit, [&](std::size_t parameter) {
            if (_callers[parameter] != nullptr) {
                open_all(parameter, writer);
                for_pieces(parameter, [&](std::size_t bucket, Piece const& piece) { copy_callers(bucket, piece, writer); });
            }
        });
        Event const written = Backend::record(writer);
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            if (is_trainable(bucket) && _pool.is_open(bucket)) {
                _writes[bucket] = {writer, written};
            }
        }
        Backend::wait(_queue, written, Fence::gradients_written);
        if (_row.shards_parameters()) {
            for (std::size_t const bucket : _layout->unit_buckets(unit)) {
                if (is_trainable(bucket) && _readiness.is_complete(bucket) && !_readiness.is_launched(bucket)) {
                    launch(bucket);
                }
            }
        } else {
            while (_readiness.next() < _layout->trainable_buckets() && _readiness.is_complete(_readiness.next())) {
                launch(_readiness.next());
            }
        }
    }

    /// @brief Launches all that is left; what nobody wrote counts as zero. Collective.
    void end_micro_step(Queue writer) {
        Backend::wait(_queue, Backend::record(writer), Fence::gradients_written);
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

    /// @brief What only the end of the accumulation can launch, if the last micro-step was not announced. Again in a step: nothing. Collective.
    void finish_step() {
        if (std::exchange(_is_finished, true)) {
            return;
        }
        bool const gathers_sums =
            !_row.shards_optimizer() && _schedule == ReductionSchedule::every_micro_step && !(_micro_steps == 1 && _is_last);
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            if (_schedule == ReductionSchedule::boundary && !_is_reduced) {
                reduce(bucket, _sum.at(bucket, 0), true, true);
            } else if (gathers_sums && _layout->elements(bucket) != 0) {
                A* const sum = _sum.at(bucket, 0);
                auto const cuts = _layout->cuts(bucket);
                _communicator->all_gather(sum + cuts[_rank], sum, cuts, _queue, CollectiveTag{"gradient sums of bucket", bucket});
            }
        }
    }

    /// @brief Gives up the micro-step: closes every lease.
    void cancel(Queue writer) {
        Event const event = Backend::record(writer);
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            if (_pool.is_open(bucket)) {
                Backend::wait(_queue, event, Fence::gradient_lease_reuse);
                _pool.close(bucket, Backend::record(_queue));
            }
        }
    }

private:
    struct Write {
        Queue queue{};
        Event event{};
    };

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

    /// Copies a part of the caller's gradient into its lease; the memory is free for later commands on `writer`.
    void copy_callers(std::size_t bucket, Piece const& piece, Queue writer) {
        Backend::copy_bytes(writer, _pool.at(bucket) + piece.bucket_begin, _callers[piece.parameter] + piece.parameter_begin,
                            piece.elements * sizeof(G));
    }

    /// At the end of a micro-step: parameters in the caller's memory that some, but not all of their units wrote.
    void copy_incomplete(std::size_t bucket, Queue writer) {
        bool is_copied = false;
        for (Piece const& piece : _layout->pieces(bucket)) {
            if (_callers[piece.parameter] != nullptr && is_written(piece.parameter) && !_readiness.is_parameter_ready(piece.parameter)) {
                if (!_pool.is_open(bucket)) {
                    open(bucket, writer);
                }
                copy_callers(bucket, piece, writer);
                is_copied = true;
            }
        }
        if (is_copied) {
            Backend::wait(_queue, Backend::record(writer), Fence::gradients_written);
        }
    }

    /// Buckets that still need a lease in this micro-step.
    [[nodiscard]] std::size_t count_closed(std::span<std::size_t const> buckets) const {
        std::size_t count = 0;
        for (std::size_t const bucket : buckets) {
            count += is_trainable(bucket) && !_pool.is_open(bucket) && !_readiness.is_launched(bucket) ? 1 : 0;
        }
        return count;
    }

    [[nodiscard]] bool is_trainable(std::size_t bucket) const noexcept { return bucket < _writes.size(); }

    void require_not_launched(std::size_t parameter) const {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            if (is_trainable(bucket) && _readiness.is_launched(bucket)) {
                throw_late_gradient(*_layout, parameter, bucket, _rank);
            }
        }
    }

    /// One lease stays free, so that the end of a micro-step can always send zeros for a bucket that nobody opened.
    void require_leases(std::size_t unit, std::size_t wanted) const {
        if (wanted != 0 && wanted + 1 > _pool.free_leases()) {
            throw_no_gradient_lease(*_layout, unit, _rank);
        }
    }

    /// Some unit leased the parameter's gradient, or wrote to the caller's memory and said so.
    [[nodiscard]] bool is_written(std::size_t parameter) const {
        return _is_begun[parameter] || (_callers[parameter] != nullptr && _readiness.is_started(parameter));
    }

    /// Memory for a parameter's gradient, cleared when it is the first of this micro-step.
    void begin_parameter(std::size_t parameter, Queue writer, bool is_zeroed) {
        G* const callers = _callers[parameter];
        if (callers == nullptr) {
            open_all(parameter, writer);
        }
        if (_is_begun[parameter]) {
            return;
        }
        _is_begun[parameter] = true;
        if (!is_zeroed) {
            return;
        }
        if (callers != nullptr) {
            Backend::fill(writer, callers, _layout->parameter(parameter).elements, G{});
        } else {
            for_pieces(parameter, [&](std::size_t bucket, Piece const& piece) {
                Backend::fill(writer, _pool.at(bucket) + piece.bucket_begin, piece.elements, G{});
            });
        }
    }

    /// Leases the parameter's buckets to commands on `writer`, behind those that opened them or wrote to them.
    void open_all(std::size_t parameter, Queue writer) {
        for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
            if (!_pool.is_open(bucket)) {
                open(bucket, writer);
            } else if (_writes[bucket].queue != writer) {
                Backend::wait(writer, _writes[bucket].event, Fence::gradients_written);
            }
        }
    }

    /// Leases a bucket and clears its padding. Who writes to a parameter clears that, and `launch` what nobody wrote.
    void open(std::size_t bucket, Queue writer) {
        G* const lease = _pool.open(bucket, writer, Fence::gradient_lease_reuse);
        if (_poison) {
            Backend::fill(writer, lease, _layout->elements(bucket), from_float<G>(std::numeric_limits<float>::quiet_NaN()));
        } else {
            _layout->for_padding(bucket, [&](Range const& gap) { Backend::fill(writer, lease + gap.begin, gap.size(), G{}); });
        }
        _writes[bucket] = {writer, Backend::record(writer)};
    }

    void launch(std::size_t bucket) {
        _readiness.set_launched(bucket);
        if (!_pool.is_open(bucket)) {
            open(bucket, _queue);
        }
        G* const lease = _pool.at(bucket);
        Backend::wait(_queue, _writes[bucket].event, Fence::gradients_written);
        for (Piece const& piece : _layout->pieces(bucket)) {
            if (!is_written(piece.parameter)) {
                Backend::fill(_queue, lease + piece.bucket_begin, piece.elements, G{});
            }
        }
        bool const is_first = _micro_steps == 0;
        if (_schedule == ReductionSchedule::every_micro_step) {
            reduce(bucket, lease, is_first, is_first && _is_last);
        } else if (is_first && _is_last && is_exact_conversion<A, G>) {
            reduce(bucket, lease, true, true); // one micro-step: passing through the accumulation buffer would change no bit
        } else {
            add(bucket, 0, lease, _layout->elements(bucket), is_first);
            if (_is_last) {
                reduce(bucket, _sum.at(bucket, 0), true, true);
            }
        }
        _pool.close(bucket, Backend::record(_queue));
    }

    /// Adds to the accumulation buffer, or overwrites it the first time in a step.
    template <class From>
    void add(std::size_t bucket, std::size_t begin, From const* values, std::size_t elements, bool is_first) {
        if (is_first) {
            Backend::convert(_queue, _sum.at(bucket, begin), values, elements, 1.0F);
        } else {
            Backend::accumulate(_queue, _sum.at(bucket, begin), values, elements);
        }
    }

    /// Sums `source` over the ranks into the accumulation buffer: the own extent, or all of it when `is_whole` in stage 0.
    template <class From>
    void reduce(std::size_t bucket, From* source, bool is_first, bool is_whole) {
        auto const cuts = _layout->cuts(bucket);
        std::size_t const elements = cuts.back();
        if (elements == 0) {
            return;
        }
        C* const wire = to_wire(source, elements);
        bool const is_all_reduce = !_row.shards_optimizer() && is_whole;
        CollectiveTag const tag{"gradients of bucket", bucket};
        std::size_t const begin = is_all_reduce ? 0 : cuts[_rank];
        std::size_t const held = is_all_reduce ? elements : cuts[_rank + 1] - begin;
        C* result = wire + begin;
        if constexpr (std::is_same_v<A, C>) {
            result = is_first ? _sum.at(bucket, begin) : result;
        }
        if (is_all_reduce) {
            _communicator->all_reduce(wire, result, cuts, _queue, tag);
        } else {
            _communicator->reduce_scatter(wire, result, cuts, _queue, tag);
        }
        if (static_cast<void*>(result) != static_cast<void*>(_sum.at(bucket, begin))) {
            add(bucket, begin, result, held, is_first);
        }
    }

    /// The payload in the communication type, pre-divided; in place where the types agree.
    template <class From>
    C* to_wire(From* source, std::size_t elements) {
        if constexpr (std::is_same_v<From, C>) {
            if (_predivide != 1.0F) {
                Backend::convert(_queue, source, source, elements, 1.0F / _predivide);
            }
            return source;
        } else {
            Backend::convert(_queue, _wire.data(), source, elements, 1.0F / _predivide);
            return _wire.data();
        }
    }

    FlatLayout const* _layout;
    Communicator* _communicator;
    Queue _queue;
    std::size_t _rank;
    StageRow _row;
    ReductionSchedule _schedule;
    float _predivide;
    bool _poison;
    Readiness _readiness;
    BucketPool<G, Backend> _pool;
    Placed<A> _sum;
    Buffer<C> _wire;
    std::vector<Write> _writes;  ///< per bucket: who wrote to its lease last
    std::vector<G*> _callers;    ///< per parameter: the caller's memory for its gradient, or null
    std::vector<char> _is_begun; ///< per parameter: its gradient was leased, and cleared if wished, in this micro-step
    std::size_t _micro_steps = 0;
    bool _is_last = false;
    bool _is_reduced = false;
    bool _is_finished = false;
    Drain<Backend> _drain;
};

} // namespace zero::detail
