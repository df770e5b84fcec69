#pragma once

#include "../../backend/fence.hpp"
#include "../../comm/communicator.hpp"
#include "../../core/buffer.hpp"
#include "../../core/convert.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/memory_plan.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/placement.hpp"
#include "bucket_copies.hpp"
#include "bucket_pool.hpp"
#include "bucket_tag.hpp"
#include "drain.hpp"
#include "engine_context.hpp"
#include "lease_errors.hpp"
#include "placed_buffer.hpp"

#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether gradients are converted into a buffer of their own before they are sent.
template <class Types>
constexpr bool has_wire(ReductionSchedule schedule) noexcept {
    using C = typename Types::Communication;
    return !std::is_same_v<typename Types::Gradient, C>
           || (schedule == ReductionSchedule::boundary
               && !std::is_same_v<typename Types::Accumulation, C>);
}

/// @brief Owns the gradients of one parameter type: the leases of a micro-step, the wire buffer and
/// the accumulation buffer. The GradientScheduler decides when they are used.
///
/// Every number is rounded at the same places in every stage. It is written in the gradient type,
/// summed over ranks in float and rounded once to the communication type, and added over
/// micro-steps in the accumulation type. Under the boundary schedule the addition precedes the sum.
template <class Config, class Types>
class GradientStore {
public:
    using G = typename Types::Gradient;
    using C = typename Types::Communication;
    using A = typename Types::Accumulation;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Communicator = typename Config::Communicator;

    [[gnu::cold]] explicit GradientStore(TypeContext<Config> const& context)
        : GradientStore(context, context.totals(context.type),
                        context.layout->trainable_buckets()) {}

    /// @brief Number of the parameter type.
    [[nodiscard]] std::size_t type() const noexcept { return _type; }

    [[nodiscard]] std::size_t free_leases() const noexcept { return _pool.free_leases(); }
    void forget_events() noexcept { _pool.forget_events(); }
    [[nodiscard]] bool is_open(std::size_t bucket) const noexcept { return _pool.is_open(bucket); }

    /// @brief The caller-owned memory of a parameter's gradient, or null.
    [[nodiscard]] G* callers(std::size_t parameter) const noexcept { return _callers[parameter]; }

    /// @brief The memory to which the backward pass adds a parameter's gradient: caller-owned, or a
    /// piece of an open bucket. Null if the parameter is frozen or empty.
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
                return at(buckets.front(), piece);
            }
        }
        return nullptr;
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept { return _copies.size_bytes(); }

    /// @brief The memory of a piece of an open bucket.
    [[nodiscard]] G* at(std::size_t bucket, Piece const& piece) const noexcept {
        return _pool.at(bucket) + piece.bucket_begin;
    }

    /// @brief Element `index` of a bucket of reduced gradients: of an own extent, or any if they
    /// are replicated.
    [[nodiscard]] A* reduced(std::size_t bucket, std::size_t index) const noexcept {
        return _sum.at(bucket, index);
    }

    /// @brief Leases a bucket. Its parameters are cleared when they are first written; the next
    /// `clear` clears the padding.
    void open(std::size_t bucket, Queue writer) {
        G* const lease = _pool.open(bucket, writer, Fence::gradient_lease_reuse);
        _has_old_padding[bucket] = !_poison;
        if (_poison) { // the padding stays poisoned
            Backend::fill(writer, lease, _layout->elements(bucket),
                          from_float<G>(std::numeric_limits<float>::quiet_NaN()));
        }
    }

    void close(std::size_t bucket, Event last_use) { _pool.close(bucket, std::move(last_use)); }

    /// @brief Clears the gradients of chosen parameters in an open bucket and, once after it was
    /// opened, its padding. Adjacent ranges are cleared by one command.
    template <class Chosen>
    void clear(std::size_t bucket, Queue writer, Chosen const& is_chosen) {
        bool const clears_padding = std::exchange(_has_old_padding[bucket], false);
        Range pending{}; // adjacent ranges found so far
        auto const add = [&](std::size_t begin, std::size_t end) {
            if (begin != pending.end) {
                clear_range(bucket, pending, writer);
                pending.begin = begin;
            }
            pending.end = end;
        };
        std::size_t end = 0; // of the previous piece
        for (Piece const& piece : _layout->pieces(bucket)) {
            bool const is_cleared = is_chosen(piece.parameter);
            if (clears_padding || (is_cleared && !_poison)) { // the padding joins two pieces
                add(end, piece.bucket_begin);
            }
            end = piece.bucket_begin + piece.elements;
            if (is_cleared) {
                add(piece.bucket_begin, end);
            }
        }
        if (clears_padding) {
            add(end, _layout->elements(bucket));
        }
        clear_range(bucket, pending, writer);
    }

    void clear_callers(std::size_t parameter, Queue writer) {
        Backend::fill(writer, _callers[parameter], _layout->parameter(parameter).elements, G{});
    }

    /// @brief Adds one piece of a transient gradient. @param gradient the whole parameter's
    void add(std::size_t bucket, Piece const& piece, void const* gradient, Queue writer) {
        Backend::accumulate(writer, at(bucket, piece),
                            static_cast<G const*>(gradient) + piece.parameter_begin,
                            piece.elements);
    }

    /// @brief Copies caller-owned gradients of chosen parameters into a lease, adjacent ones by one
    /// command. Their memory is free for later commands on `writer`.
    template <class Chosen>
    void copy_callers(std::size_t bucket, Queue writer, Chosen const& is_chosen) {
        std::size_t next = 0;  // row of the bucket's table
        std::size_t count = 0; // chosen rows directly before it
        auto const copy = [&] {
            if (count != 0) {
                Backend::copy_to_bucket(writer, _copies.of(bucket, next - count, count),
                                        _pool.at(bucket));
            }
            count = 0;
        };
        for (Piece const& piece : _layout->pieces(bucket)) {
            if (_callers[piece.parameter] == nullptr || piece.elements == 0) {
                continue;
            }
            if (is_chosen(piece.parameter)) {
                ++count;
            } else {
                copy();
            }
            ++next;
        }
        copy();
    }

    /// @brief Takes over what a bucket's lease holds: reduces it, or adds it to the accumulation
    /// buffer and reduces that in the last micro-step.
    void take(std::size_t bucket, bool is_first, bool is_last) {
        G* const lease = _pool.at(bucket);
        if (_schedule == ReductionSchedule::every_micro_step) {
            reduce(bucket, lease, is_first, is_first && is_last);
        } else if (is_first && is_last && is_exact_conversion<A, G>) {
            reduce(bucket, lease, true, true); // one micro-step: passing through the accumulation
                                               // buffer would change no bit
        } else {
            add_to_sum(bucket, 0, lease, _layout->elements(bucket), is_first);
            if (is_last) {
                reduce_sum(bucket);
            }
        }
    }

    /// @brief Reduces the accumulation buffer's bucket.
    void reduce_sum(std::size_t bucket) { reduce(bucket, _sum.at(bucket, 0), true, true); }

    /// @brief Gathers the sums of all extents, for replicated gradients. Collective.
    void gather_sums(std::size_t bucket) {
        auto const cuts = _layout->cuts(bucket);
        if (cuts.back() != 0) {
            A* const sum = _sum.at(bucket, 0);
            _communicator->all_gather(sum + cuts[_rank], sum, cuts, _queue,
                                      bucket_tag("gradient sums of bucket", *_layout, bucket));
        }
    }

private:
    void clear_range(std::size_t bucket, Range const& range, Queue writer) {
        if (range.size() != 0) {
            Backend::fill(writer, _pool.at(bucket) + range.begin, range.size(), G{});
        }
    }

    [[gnu::cold]] GradientStore(TypeContext<Config> const& context, LayoutTotals const& totals,
                                std::size_t buckets)
        : _type(context.type), _layout(context.layout), _communicator(context.communicator),
          _queue(context.queue), _rank(context.rank()), _schedule(context.schedule),
          _is_replicated(!context.row.shards_optimizer()), _predivide(context.predivide),
          _poison(context.options->poison),
          _pool(totals.gradient_leases, totals.largest_trainable_bucket, buckets, *context.memory,
                BufferKind::gradient_leases),
          _sum(*_layout, buckets, context.type, _rank, context.row.accumulation_buffer,
               *context.memory, BufferKind::gradients),
          _wire(*context.memory, has_wire<Types>(_schedule) ? totals.largest_trainable_bucket : 0,
                BufferKind::wire),
          _has_old_padding(buckets, false), _drain(context.queue) {
        for (auto const& parameter : context.parameters) {
            _callers.push_back(parameter.spec.type == context.type
                                   ? static_cast<G*>(parameter.gradient)
                                   : nullptr);
        }
        _copies = {*_layout, _queue, *context.memory, _callers, [&](std::size_t bucket) {
                       return bucket < buckets ? Range{0, _layout->elements(bucket)} : Range{};
                   }};
        Backend::fill(_queue, _sum.data(), _sum.size(), A{});
    }

    /// Adds to the accumulation buffer; the first addition of a step overwrites it.
    template <class From>
    void add_to_sum(std::size_t bucket, std::size_t begin, From const* values, std::size_t elements,
                    bool is_first) {
        if (is_first) {
            Backend::convert(_queue, _sum.at(bucket, begin), values, elements, 1.0F);
        } else {
            Backend::accumulate(_queue, _sum.at(bucket, begin), values, elements);
        }
    }

    /// Sums `source` over the ranks into the accumulation buffer: the whole bucket if `is_whole`
    /// and gradients are replicated, otherwise the own extent. Collective.
    template <class From>
    void reduce(std::size_t bucket, From* source, bool is_first, bool is_whole) {
        auto const cuts = _layout->cuts(bucket);
        std::size_t const elements = cuts.back();
        if (elements == 0) {
            return;
        }
        C* const wire = to_wire(source, elements);
        bool const is_all_reduce = _is_replicated && is_whole;
        CollectiveTag const tag = bucket_tag("gradients of bucket", *_layout, bucket);
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
            add_to_sum(bucket, begin, result, held, is_first);
        }
    }

    /// Converts the payload to the communication type and pre-divides it; in place if the types
    /// agree.
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

    std::size_t _type;
    FlatLayout const* _layout;
    Communicator* _communicator;
    Queue _queue;
    std::size_t _rank;
    ReductionSchedule _schedule;
    bool _is_replicated; ///< every rank holds all reduced gradients
    float _predivide;
    bool _poison;
    BucketPool<G, Backend> _pool;
    PlacedBuffer<A> _sum;
    Buffer<C> _wire;
    std::vector<char> _has_old_padding; ///< per bucket: opened, and its padding not yet cleared
    List<G*> _callers;                  ///< per parameter: its caller-owned gradient, or null
    BucketCopies<G, Backend> _copies;   ///< rows of the caller-owned gradients
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
