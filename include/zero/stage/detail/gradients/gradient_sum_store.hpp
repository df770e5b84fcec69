#pragma once

#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/cuts.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gradient_source.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../layout/wire_chunk.hpp"
#include "../../../ops/tree_sum.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../memory/offloaded_states.hpp"
#include "../memory/placed_buffer.hpp"
#include "replica_sum_store.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether gradients are converted into a buffer of their own before they are sent.
template <class Types>
constexpr bool has_wire(ReductionSchedule schedule) noexcept {
    using C = typename Types::Communication;
    return !has_gradient_codec<Types>
           && (!std::is_same_v<typename Types::Gradient, C>
               || (schedule == ReductionSchedule::boundary
                   && !std::is_same_v<typename Types::Accumulation, C>));
}

/// @brief Owns the buffer in which gradients are converted to the communication type, and sends
/// buckets through it. A member of GradientSumStore.
///
/// A bucket that is larger than the buffer is sent in chunks, so that no buffer is as large as the
/// largest tensor. Sums are formed per element, so chunks change no bit.
template <class Config, class Types>
class GradientWire {
public:
    using C = typename Types::Communication;
    using Backend = typename Config::Backend;

    [[gnu::cold]] explicit GradientWire(TypeContext<Config> const& context)
        : _capacity(context.options->reduction.wire_bytes / sizeof(C)),
          _buffer(*context.memory,
                  has_wire<Types>(context.schedule)
                      ? context.totals(context.type, sizeof(C)).wire_elements
                      : 0,
                  BufferKind::wire),
          _cuts(context.layout->world() + 1, 0) {}

    /// @brief Converts a bucket chunk by chunk and calls `send(wire, cuts, first)` for each chunk.
    /// `cuts` are its W + 1 cuts, valid during the call. `first(r)` is the offset in the bucket of
    /// the element at `wire + cuts[r]`.
    /// @param factor multiplies the values before the conversion
    template <class From, class Send>
    void for_chunks(typename Backend::Queue queue, std::span<std::size_t const> cuts,
                    From const* source, float factor, Send const& send) {
        std::size_t const stride = wire_stride(cuts, _capacity);
        if (cuts.back() <= _capacity) {
            Backend::convert(queue, _buffer.data(), source, cuts.back(), factor);
            send(_buffer.data(), cuts, [&](std::size_t rank) { return cuts[rank]; });
            return;
        }
        for (std::size_t chunk = 0; chunk < wire_chunks(cuts, _capacity); ++chunk) {
            auto const part = [&](std::size_t rank) {
                return wire_part(cuts[rank], cuts[rank + 1], stride, chunk);
            };
            auto const first = [&](std::size_t rank) { return cuts[rank] + part(rank).begin; };
            for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
                std::size_t const elements = part(rank).size();
                if (elements != 0) {
                    Backend::convert(queue, _buffer.data() + _cuts[rank], source + first(rank),
                                     elements, factor);
                }
                _cuts[rank + 1] = _cuts[rank] + elements;
            }
            send(_buffer.data(), std::span<std::size_t const>(_cuts.data(), _cuts.size()), first);
        }
    }

private:
    std::size_t _capacity; ///< in elements
    Buffer<C> _buffer;
    std::vector<std::size_t> _cuts; ///< cuts of the current chunk
};

template <class Config, class Types>
class EncodedGradients; // stage/wire.hpp includes it

/// @brief How the buckets of a parameter type are sent: in a communication type or in codes.
template <class Config, class Types>
using GradientWireOf =
    std::conditional_t<has_gradient_codec<Types>, EncodedGradients<Config, Types>,
                       GradientWire<Config, Types>>;

/// @brief Returns the tree of an engine's steps, with `TreeReduction`.
template <class Config>
[[nodiscard]] ops::MicroBatchTree tree_of(EngineContext<Config> const& context) noexcept {
    return {context.options->reduction.micro_batches, context.options->reduction.micro_batch_group,
            context.layout->world()};
}

/// @brief Owns the sums that `TreeReduction` holds between the micro-steps of a step, beside the
/// accumulation buffer. A member of GradientSumStore.
///
/// The sums are floats of this rank's extents. The oldest is in the accumulation buffer if that has
/// floats.
template <class Config, class Types>
class HeldSumStore {
public:
    using A = typename Types::Accumulation;
    static constexpr bool is_float = std::is_same_v<A, float>;

    /// @brief Returns how many sums lie beside the accumulation buffer.
    [[nodiscard]] static std::size_t slots(EngineContext<Config> const& context) {
        std::size_t const most = tree_of<Config>(context).most_held();
        return is_float && most != 0 ? most - 1 : most;
    }

    [[gnu::cold]] HeldSumStore(TypeContext<Config> const& context, std::size_t buckets)
        : _tree(tree_of<Config>(context)), _offsets(*context.layout, buckets, context.type,
                                                    context.shard_rank(), Placement::sharded),
          _sums(*context.memory, slots(context) * _offsets.elements(), BufferKind::held_sums) {}

    /// @brief Calls `reduce(sum)` with the `ops::TreeSum` of a micro-step, of floats or of `A`.
    /// @param begin index in the bucket of the first element, in this rank's extent
    /// @param result where the sum of the step goes
    template <class Reduce>
    void with_sum(std::size_t bucket, std::size_t begin, A* result, std::size_t micro_step,
                  Reduce const& reduce) const {
        ops::TreeWalk walk(_tree.micro_steps(), _tree.step_group(), micro_step);
        std::size_t const before = walk.held();
        std::size_t const added = walk.next();
        std::size_t const place = before - added; // of the oldest
        float* const oldest = sum(bucket, begin, result, place);
        ops::HeldSums const held{
            added == 0 ? nullptr : oldest,
            added < 2 ? nullptr : sum(bucket, begin, result, place + 1),
            _offsets.elements(),
            added,
            _tree.rank_group(),
        };
        if constexpr (is_float) {
            reduce(ops::TreeSum<float>{oldest, held});
        } else if (micro_step + 1 == _tree.micro_steps()) {
            reduce(ops::TreeSum<A>{result, held});
        } else {
            reduce(ops::TreeSum<float>{oldest, held});
        }
    }

private:
    /// The address of a held sum, counted from the oldest; null if none is held.
    float* sum(std::size_t bucket, std::size_t begin, A* result, std::size_t place) const noexcept {
        if constexpr (is_float) {
            if (place-- == 0) {
                return result;
            }
        }
        return _sums.size() == 0
                   ? nullptr
                   : _sums.data() + place * _offsets.elements() + _offsets.at(bucket, begin);
    }

    ops::MicroBatchTree _tree;
    PlacedOffsets _offsets;
    Buffer<float> _sums;
};

/// @brief Nothing is held without `TreeReduction`.
struct NoHeldSums {
    template <class Context>
    NoHeldSums(Context const& /*context*/, std::size_t /*buckets*/) noexcept {}
};

/// @brief Owns the reduced gradients of one parameter type: the accumulation buffer and the wire
/// buffer through which gradients are sent. A member of GradientStore, which owns their sources.
///
/// Every number is rounded at the same places in every stage. It is written in the gradient type,
/// summed over ranks in float and rounded once to the communication type, and added over
/// micro-steps in the accumulation type. Under the boundary schedule the addition precedes the sum.
template <class Config, class Types>
class GradientSumStore {
public:
    using G = typename Types::Gradient;
    using C = typename Types::Communication;
    using A = typename Types::Accumulation;
    using Backend = typename Config::Backend;
    using Communicator = typename Config::Communicator;

    /// @brief Whether sums over the ranks replace the gradients in the caller's block, so that no
    /// accumulation buffer exists. Only with one micro-step per step.
    [[nodiscard]] static bool sums_in_block(EngineContext<Config> const& context) {
        return std::is_same_v<G, C> && std::is_same_v<G, A> && context.has_one_micro_step
               && has_gradient_block(*context.layout) && !is_on_host;
    }

    /// @brief Whether sums over the ranks replace the gradients in the engine's memory, so that it
    /// holds the sums and no leases. Only with one micro-step per step. The first micro-step of a
    /// step would only copy each gradient, so the bits are the same.
    [[nodiscard]] static bool sums_in_leases(EngineContext<Config> const& context,
                                             std::size_t type) {
        return std::is_same_v<G, A> && context.has_one_micro_step && !is_on_host
               && can_sum_in_leases(*context.layout, context.row, type);
    }

    /// @brief Whether the communicator can read gradients in tensors of the caller where they lie:
    /// nothing is converted or encoded before they are added.
    static constexpr bool can_send_pieces = [] {
        if constexpr (std::is_same_v<G, C> && !Types::adds_in_tree && !has_gradient_codec<Types>) {
            return ReduceScattersPieces<ShardOf<Communicator>, C, A>;
        } else {
            return false;
        }
    }();

    /// @brief Whether this engine sends gradients in pieces, the same in every micro-step that
    /// sends. An all-reduce of replicated gradients and a divisor need one address. Beside a
    /// gradient block the copies may become the sums.
    [[nodiscard]] static bool sends_pieces(EngineContext<Config> const& context) noexcept {
        return reads_pieces<C, A>(shard_of(*context.communicator)) && can_send_pieces
               && context.row.shards_optimizer() && context.predivide == 1.0F
               && !has_gradient_block(*context.layout);
    }

    /// @brief Whether it sends pieces in every micro-step, so that there is no buffer for copies.
    [[nodiscard]] static bool sends_only_pieces(EngineContext<Config> const& context) noexcept {
        return sends_pieces(context)
               && (context.schedule == ReductionSchedule::every_micro_step
                   || (context.has_one_micro_step && is_exact_conversion<A, G>));
    }

    [[gnu::cold]] GradientSumStore(TypeContext<Config> const& context, std::size_t buckets)
        : _layout(context.layout), _communicator(context.communicator), _queue(context.queue),
          _rank(context.shard_rank()), _is_replicated(!context.row.shards_optimizer()),
          _predivide(context.predivide),
          _sums_in_sources(sums_in_block(context) || sums_in_leases(context, context.type)),
          _sum(*_layout, _sums_in_sources ? 0 : buckets, context.type, _rank,
               context.row.accumulation_buffer, memory_of<BufferKind::gradients>(context),
               BufferKind::gradients),
          _held(context, buckets), _wire(context), _replicas(context), _cuts(_layout->world()),
          _drain(context.queue) {
        Backend::fill(_queue, _sum.data(), _sum.size(), A{});
    }

    /// @brief Whether the sums of a bucket replace its gradients; see `use_sources`.
    [[nodiscard]] bool sums_in_sources() const noexcept { return _sums_in_sources; }

    /// @brief Sets where the sums of each bucket replace its gradients, if `sums_in_sources`.
    void use_sources(List<G*> sources) {
        if constexpr (std::is_same_v<A, G>) {
            _sources = std::move(sources);
        }
    }

    /// @brief The address of element `index` of a bucket of reduced gradients. Unless they are
    /// replicated, it must be in this rank's extent.
    [[nodiscard]] A* at(std::size_t bucket, std::size_t index) const noexcept {
        return _sums_in_sources ? _sources[bucket] + index : _sum.at(bucket, index);
    }

    /// @brief Adds values to the accumulation buffer, from element `begin` of a bucket on; the
    /// first addition of a step overwrites it.
    template <class From>
    void add(std::size_t bucket, std::size_t begin, From const* values, std::size_t elements,
             bool is_first) {
        if (is_first) {
            Backend::convert(_queue, at(bucket, begin), values, elements, 1.0F);
        } else {
            Backend::accumulate(_queue, at(bucket, begin), values, elements);
        }
    }

    /// @brief Sums `source` over the ranks into the accumulation buffer: the whole bucket if
    /// `is_whole` and gradients are replicated, otherwise this rank's extent. Collective.
    template <class From>
    void reduce(std::size_t bucket, From* source, bool is_first, bool is_whole) {
        auto const cuts = _cuts.of(_layout->cuts(bucket));
        if (cuts.back() == 0) {
            return;
        }
        bool const is_all_reduce = _is_replicated && is_whole;
        float const factor = 1.0F / _predivide;
        if constexpr (!std::is_same_v<From, C>) {
            _wire.for_chunks(_queue, cuts, source, factor,
                             [&](C* wire, auto chunk, auto const& first) {
                                 if (is_all_reduce) {
                                     all_reduce(bucket, wire, wire, chunk);
                                     if (chunk.data() == cuts.data()) { // the whole bucket
                                         add(bucket, 0, wire, cuts.back(), is_first);
                                         return;
                                     }
                                     for (std::size_t rank = 0; rank + 1 < chunk.size(); ++rank) {
                                         add(bucket, first(rank), wire + chunk[rank],
                                             chunk[rank + 1] - chunk[rank], is_first);
                                     }
                                 } else {
                                     scatter_into_sum(bucket, first(_rank), wire, chunk, is_first);
                                 }
                             });
        } else {
            if (_predivide != 1.0F) {
                Backend::convert(_queue, source, source, cuts.back(), factor);
            }
            if (is_all_reduce) {
                C* const result = result_of(bucket, 0, source, is_first);
                all_reduce(bucket, source, result, cuts);
                add_result(bucket, 0, result, cuts.back(), is_first);
            } else {
                scatter_into_sum(bucket, cuts[_rank], source, cuts, is_first);
            }
        }
    }

    /// @brief The same of gradients where they lie, into this rank's extent.
    void reduce(std::size_t bucket, SentPieces<C> pieces, bool is_first)
        requires can_send_pieces
    {
        auto const cuts = _cuts.of(_layout->cuts(bucket));
        if (cuts.back() != 0) {
            shard().reduce_scatter(pieces, at(bucket, cuts[_rank]), cuts, _queue,
                                   gradient_tag(bucket), !is_first);
        }
    }

    /// @brief The same in codes, into this rank's extent.
    template <class From>
        requires(has_gradient_codec<Types>)
    void reduce(std::size_t bucket, From* source, bool is_first, bool /*is_whole*/) {
        Range const own = _layout->extent(bucket, _rank);
        A* const sums = own.is_empty() ? nullptr : at(bucket, own.begin);
        _wire.reduce(bucket, static_cast<From const*>(source), sums, is_first,
                     gradient_tag(bucket));
    }

    /// @brief Sums `source` over the ranks as a subtree of micro-batches, and adds the sums that
    /// are held, into this rank's extent. Collective.
    template <class From>
    void reduce_in_tree(std::size_t bucket, From* source, std::size_t micro_step) {
        auto const cuts = _cuts.of(_layout->cuts(bucket));
        if (cuts.back() == 0) {
            return;
        }
        auto const send = [&](C const* values, std::span<std::size_t const> parts,
                              std::size_t begin) {
            _held.with_sum(bucket, begin, at(bucket, begin), micro_step, [&](auto const& sum) {
                shard().reduce_scatter(values, sum, parts, _queue, gradient_tag(bucket));
            });
        };
        if constexpr (!std::is_same_v<From, C>) {
            _wire.for_chunks(
                _queue, cuts, source, 1.0F,
                [&](C* wire, auto chunk, auto const& first) { send(wire, chunk, first(_rank)); });
        } else {
            send(source, cuts, cuts[_rank]);
        }
    }

    /// @brief What the encoding of gradients lost, with `ErrorFeedback`.
    [[nodiscard]] auto& errors() noexcept { return _wire.errors(); }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        std::size_t bytes = 0;
        if constexpr (has_gradient_codec<Types>) {
            bytes += _wire.table_bytes();
        }
        if constexpr (has_replica_codec<Types>) {
            bytes += _replicas.table_bytes();
        }
        return bytes;
    }

    /// @brief See `ReductionNames`.
    void name_reductions(bool is_last) noexcept
        requires GroupedCommunicator<Communicator>
    {
        _replicas.name_reductions(is_last);
    }

    /// @brief Gathers the sums of all extents, for replicated gradients. Collective.
    void gather(std::size_t bucket) {
        auto const cuts = _cuts.of(_layout->cuts(bucket));
        if (cuts.back() != 0) {
            A* const sum = at(bucket, 0);
            shard().all_gather(
                sum + cuts[_rank], sum, cuts, _queue,
                bucket_tag(CollectivePurpose::reduce, "gradient sums of bucket", *_layout, bucket));
        }
    }

    /// @brief Adds this rank's extent of the sums over the replicas. Collective.
    void add_over_replicas(std::size_t bucket) {
        Range const own = _layout->extent(bucket, _rank);
        if (own.is_empty()) {
            return;
        }
        CollectiveTag const tag =
            bucket_tag(CollectivePurpose::reduce, "sums of replicas of bucket", *_layout, bucket);
        if constexpr (has_replica_codec<Types>) {
            _replicas.add_up(bucket, at(bucket, own.begin), tag);
        } else {
            _replicas.add_up(at(bucket, own.begin), own.size(), tag);
        }
    }

private:
    static constexpr bool is_on_host = lies_on_host<Config>(BufferKind::gradients);

    void all_reduce(std::size_t bucket, C const* values, C* result,
                    std::span<std::size_t const> cuts) {
        shard().all_reduce(values, result, cuts, _queue, gradient_tag(bucket));
    }

    /// Reduces `values` to this rank's extent and accumulates it. Collective.
    /// @param begin index in the bucket of the extent's first element
    void scatter_into_sum(std::size_t bucket, std::size_t begin, C* values,
                          std::span<std::size_t const> cuts, bool is_first) {
        if constexpr (AccumulatesReduceScatter<ShardOf<Communicator>, C, A>) {
            shard().reduce_scatter(static_cast<C const*>(values), at(bucket, begin), cuts, _queue,
                                   gradient_tag(bucket), !is_first);
        } else {
            C* const result = result_of(bucket, begin, values + cuts[_rank], is_first);
            shard().reduce_scatter(static_cast<C const*>(values), result, cuts, _queue,
                                   gradient_tag(bucket));
            add_result(bucket, begin, result, cuts[_rank + 1] - cuts[_rank], is_first);
        }
    }

    /// Where the sum over ranks is written: in the accumulation buffer if nothing needs to be added
    /// or converted, otherwise in place. Collectives get memory of the device only.
    C* result_of(std::size_t bucket, std::size_t begin, C* in_place, bool is_first) const noexcept {
        if constexpr (std::is_same_v<A, C> && !is_on_host) {
            return is_first ? at(bucket, begin) : in_place;
        } else {
            return in_place;
        }
    }

    /// Accumulates a sum over ranks unless it was written where it belongs.
    void add_result(std::size_t bucket, std::size_t begin, C const* result, std::size_t elements,
                    bool is_first) {
        if (static_cast<void const*>(result) != at(bucket, begin)) {
            add(bucket, begin, result, elements, is_first);
        }
    }

    [[nodiscard]] auto& shard() const noexcept { return shard_of(*_communicator); }

    CollectiveTag gradient_tag(std::size_t bucket) const noexcept {
        char const* what =
            has_gradient_codec<Types> ? "encoded gradients of bucket" : "gradients of bucket";
        if constexpr (GroupedCommunicator<Communicator>) {
            what = _replicas.reductions();
        }
        return bucket_tag(CollectivePurpose::reduce, what, *_layout, bucket);
    }

    FlatLayout const* _layout;
    Communicator* _communicator;
    typename Backend::Queue _queue;
    std::size_t _rank;   ///< among those over which gradients are cut
    bool _is_replicated; ///< every rank holds all reduced gradients
    float _predivide;
    bool _sums_in_sources; ///< see `sums_in_block` and `sums_in_leases`
    List<A*> _sources;     ///< by bucket, if sums replace gradients
    PlacedBuffer<A> _sum;
    [[no_unique_address]] std::conditional_t<Types::adds_in_tree, HeldSumStore<Config, Types>,
                                             NoHeldSums>
        _held;
    GradientWireOf<Config, Types> _wire;
    [[no_unique_address]] ReplicaSumsOf<Config, Types> _replicas;
    CutList _cuts; ///< cuts of the bucket that is sent
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
