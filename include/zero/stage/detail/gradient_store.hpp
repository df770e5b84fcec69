#pragma once

#include "../../backend/fence.hpp"
#include "../../comm/communicator.hpp"
#include "../../core/buffer.hpp"
#include "../../core/convert.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/gradient_source.hpp"
#include "../../layout/memory_plan.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/placement.hpp"
#include "bucket_copies.hpp"
#include "bucket_pool.hpp"
#include "bucket_tag.hpp"
#include "drain.hpp"
#include "engine_context.hpp"
#include "gradient_wire.hpp"
#include "lease_errors.hpp"
#include "piece_indices.hpp"
#include "placed_buffer.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the gradients of one parameter type: the leases of a micro-step, the buffer for
/// copies of caller-owned gradients, the wire buffer and the accumulation buffer. The
/// GradientScheduler decides when they are used.
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

    /// @brief Whether sums over the ranks replace the gradients in the caller's block, so that no
    /// accumulation buffer exists. Only under the boundary schedule, with one micro-step per step.
    [[nodiscard]] static bool sums_in_block(EngineContext<Config> const& context) {
        return std::is_same_v<G, C> && std::is_same_v<G, A>
               && context.schedule == ReductionSchedule::boundary
               && has_gradient_block(*context.layout);
    }

    [[gnu::cold]] explicit GradientStore(TypeContext<Config> const& context)
        : GradientStore(context, context.layout->trainable_buckets(), sums_in_block(context)) {}

    /// @brief Number of the parameter type.
    [[nodiscard]] std::size_t type() const noexcept { return _type; }

    /// @brief Whether a bucket is leased from its first writer to its reduction. Otherwise all its
    /// gradients are caller-owned, and `prepare` finds them.
    [[nodiscard]] bool is_leased(std::size_t bucket) const noexcept {
        return _sources[bucket] == GradientSource::lease;
    }

    /// @brief Whether any gradient of a bucket is read from caller-owned memory.
    [[nodiscard]] bool reads_callers(std::size_t bucket) const noexcept {
        return !is_leased(bucket) || _copies.count(bucket) != 0;
    }

    /// @brief Reserves memory for a leased bucket. A second call is a no-op. @return false if there
    /// is no room
    [[nodiscard]] bool claim(std::size_t bucket, LeaseChoice choice) {
        return _pool.claim(bucket, choice);
    }
    void unclaim(std::size_t bucket) { _pool.unclaim(bucket); }
    [[nodiscard]] bool has_room_after_earlier(std::size_t bucket) const {
        return _pool.has_room_after_earlier(bucket);
    }
    [[nodiscard]] bool is_claimed(std::size_t bucket) const noexcept {
        return _pool.is_claimed(bucket);
    }
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
        auto const pieces = _layout->parameter_pieces(parameter);
        if (pieces.size() != 1) {
            throw_split_gradient(*_layout, parameter);
        }
        return at(pieces.front().bucket, _layout->piece(pieces.front()));
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept { return _copies.size_bytes(); }

    /// @brief The memory of a piece of an open bucket.
    [[nodiscard]] G* at(std::size_t bucket, Piece const& piece) const noexcept {
        return _pool.at(bucket) + piece.bucket_begin;
    }

    /// @brief The memory from which a bucket is reduced; open if it is leased.
    [[nodiscard]] G* source(std::size_t bucket) const noexcept {
        switch (_sources[bucket]) {
        case GradientSource::lease: return _pool.at(bucket);
        case GradientSource::copy: return _copied.data();
        case GradientSource::block: break;
        }
        return _block + _layout->bucket(bucket).block_begin;
    }

    /// @brief Element `index` of a bucket of reduced gradients: of an own extent, or any if they
    /// are replicated.
    [[nodiscard]] A* reduced(std::size_t bucket, std::size_t index) const noexcept {
        if constexpr (std::is_same_v<A, G>) {
            if (_sums_in_block) {
                return source(bucket) + index;
            }
        }
        return _sum.at(bucket, index);
    }

    /// @brief Leases a bucket. Its parameters are cleared when they are first written. The padding
    /// keeps what the last user of the memory wrote: it is sent, but nothing reads it.
    void open(std::size_t bucket, Queue writer) {
        if (!_pool.claim(bucket)) {
            throw_no_room(*_layout, bucket, _rank);
        }
        poison_source(bucket, writer, _pool.open(bucket, writer, Fence::gradient_lease_reuse));
    }

    void close(std::size_t bucket, Event last_use) { _pool.close(bucket, std::move(last_use)); }

    /// @brief Clears the gradients of chosen parameters in the source of a bucket. Pieces that
    /// follow one another are cleared by one command, together with the padding between them unless
    /// that is poisoned. O(pieces looked at).
    template <class Chosen>
    void clear(std::size_t bucket, Queue writer, PieceIndices pieces, Chosen const& is_chosen) {
        auto const all = _layout->pieces(bucket);
        std::size_t next = 0; // index behind the last chosen piece
        Range pending{};
        for (std::size_t number = 0; number < pieces.size(); ++number) {
            Piece const& piece = all[pieces[number]];
            if (!is_chosen(piece.parameter)) {
                continue;
            }
            if (_poison || pieces[number] != next || pending.is_empty()) {
                clear_range(bucket, pending, writer);
                pending.begin = piece.bucket_begin;
            }
            pending.end = piece.bucket_begin + piece.elements;
            next = pieces[number] + 1;
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

    /// @brief Completes the source of a bucket before its reduction: copies caller-owned gradients
    /// into it unless they are reduced in place, adjacent ones by one command, and clears those
    /// that were not written.
    template <class Written>
    void prepare(std::size_t bucket, PieceIndices pieces, Written const& is_written) {
        if (_sources[bucket] == GradientSource::copy) {
            poison_source(bucket, _queue, _copied.data());
        }
        std::size_t row = 0;   // of the bucket's table of copies
        std::size_t count = 0; // rows to copy directly before it
        auto const copy = [&] {
            if (count != 0) {
                Backend::copy_to_bucket(_queue, _copies.of(bucket, row - count, count),
                                        source(bucket));
            }
            count = 0;
        };
        for (Piece const& piece : _layout->pieces(bucket)) {
            if (_copies.count(bucket) == 0) {
                break;
            }
            if (_callers[piece.parameter] != nullptr && piece.elements != 0) {
                if (is_written(piece.parameter)) {
                    ++count;
                } else {
                    copy();
                }
                ++row;
            }
        }
        copy();
        clear(bucket, _queue, pieces,
              [&](std::size_t parameter) { return !is_written(parameter); });
    }

    /// @brief Takes over the source of a bucket: reduces it, or adds it to the accumulation buffer
    /// and reduces that in the last micro-step.
    void take(std::size_t bucket, bool is_first, bool is_last) {
        G* const lease = source(bucket);
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
    void reduce_sum(std::size_t bucket) { reduce(bucket, reduced(bucket, 0), true, true); }

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
            Backend::fill(writer, source(bucket) + range.begin, range.size(), G{});
        }
    }

    /// With poison: fills the memory of a bucket with NaN. The padding keeps it.
    void poison_source(std::size_t bucket, Queue writer, G* memory) {
        if (_poison) {
            Backend::fill(writer, memory, _layout->elements(bucket),
                          from_float<G>(std::numeric_limits<float>::quiet_NaN()));
        }
    }

    [[gnu::cold]] GradientStore(TypeContext<Config> const& context, std::size_t buckets,
                                bool sums_in_block)
        : _type(context.type), _layout(context.layout), _communicator(context.communicator),
          _queue(context.queue), _rank(context.rank()), _schedule(context.schedule),
          _is_replicated(!context.row.shards_optimizer()), _predivide(context.predivide),
          _poison(context.options->poison), _sums_in_block(sums_in_block),
          _pool(context.gradient_leases(context.type), *context.memory,
                BufferKind::gradient_leases),
          _copied(*context.memory, copied_gradient_elements(*_layout, context.type),
                  BufferKind::gradient_leases),
          _sum(*_layout, sums_in_block ? 0 : buckets, context.type, _rank,
               context.row.accumulation_buffer, *context.memory, BufferKind::gradients),
          _wire(context), _drain(context.queue) {
        for (auto const& parameter : context.parameters) {
            _callers.push_back(parameter.spec.type == context.type
                                   ? static_cast<G*>(parameter.gradient)
                                   : nullptr);
        }
        for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
            _sources.push_back(gradient_source(*_layout, bucket));
            if (_sources[bucket] == GradientSource::block) {
                Piece const& piece = _layout->pieces(bucket).front();
                _block = _callers[piece.parameter] + piece.parameter_begin - piece.bucket_begin
                         - _layout->bucket(bucket).block_begin;
            }
        }
        _copies = {*_layout, _queue, *context.memory, _callers, [&](std::size_t bucket) {
                       return bucket < buckets && _sources[bucket] != GradientSource::block
                                  ? Range{0, _layout->elements(bucket)}
                                  : Range{};
                   }};
        Backend::fill(_queue, _sum.data(), _sum.size(), A{});
        _pool.fill(_queue, G{}); // padding is sent, so it must have a value
        Backend::fill(_queue, _copied.data(), _copied.size(), G{});
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
        if (cuts.back() == 0) {
            return;
        }
        bool const is_all_reduce = _is_replicated && is_whole;
        float const factor = 1.0F / _predivide;
        if constexpr (!std::is_same_v<From, C>) {
            _wire.for_chunks(_queue, cuts, source, factor,
                             [&](C* wire, auto chunk, auto const& first) {
                                 if (is_all_reduce) {
                                     send(bucket, wire, wire, chunk, true);
                                     if (chunk.data() == cuts.data()) { // the whole bucket
                                         add_to_sum(bucket, 0, wire, cuts.back(), is_first);
                                         return;
                                     }
                                     for (std::size_t rank = 0; rank + 1 < chunk.size(); ++rank) {
                                         add_to_sum(bucket, first(rank), wire + chunk[rank],
                                                    chunk[rank + 1] - chunk[rank], is_first);
                                     }
                                 } else {
                                     send(bucket, wire, wire + chunk[_rank], chunk, false);
                                     add_to_sum(bucket, first(_rank), wire + chunk[_rank],
                                                chunk[_rank + 1] - chunk[_rank], is_first);
                                 }
                             });
        } else {
            if (_predivide != 1.0F) {
                Backend::convert(_queue, source, source, cuts.back(), factor);
            }
            std::size_t const begin = is_all_reduce ? 0 : cuts[_rank];
            std::size_t const held = is_all_reduce ? cuts.back() : cuts[_rank + 1] - begin;
            C* result = source + begin;
            if constexpr (std::is_same_v<A, C>) {
                result = is_first ? reduced(bucket, begin) : result;
            }
            send(bucket, source, result, cuts, is_all_reduce);
            if (static_cast<void*>(result) != static_cast<void*>(reduced(bucket, begin))) {
                add_to_sum(bucket, begin, result, held, is_first);
            }
        }
    }

    void send(std::size_t bucket, C const* values, C* result, std::span<std::size_t const> cuts,
              bool is_all_reduce) {
        CollectiveTag const tag = bucket_tag("gradients of bucket", *_layout, bucket);
        if (is_all_reduce) {
            _communicator->all_reduce(values, result, cuts, _queue, tag);
        } else {
            _communicator->reduce_scatter(values, result, cuts, _queue, tag);
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
    bool _sums_in_block; ///< see `sums_in_block`
    BucketPool<G, Backend> _pool;
    Buffer<G> _copied; ///< source of one bucket at a time, whose gradients are caller-owned
    PlacedBuffer<A> _sum;
    GradientWire<Config, Types> _wire;
    G* _block = nullptr;              ///< the caller's block of gradients, if there is one
    List<G*> _callers;                ///< per parameter: its caller-owned gradient, or null
    List<GradientSource> _sources;    ///< per trainable bucket
    BucketCopies<G, Backend> _copies; ///< rows of caller-owned gradients that are copied
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
