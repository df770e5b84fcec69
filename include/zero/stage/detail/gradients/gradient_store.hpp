#pragma once

#include "../../../backend/fence.hpp"
#include "../../../comm/communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gradient_source.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/padding.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../memory/bucket_copies.hpp"
#include "../memory/bucket_pool.hpp"
#include "gradient_pieces.hpp"
#include "gradient_sum_store.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Ascending indices of pieces of one bucket: all of them, or those at listed positions.
class PieceIndices {
public:
    /// @brief All pieces of a bucket that has `count`.
    explicit PieceIndices(std::size_t count) noexcept : _count(count) {}

    /// @param listed positions in one bucket, in ascending order
    explicit PieceIndices(std::span<PiecePosition const> listed) noexcept
        : _listed(listed.data()), _count(listed.size()) {}

    [[nodiscard]] std::size_t size() const noexcept { return _count; }
    [[nodiscard]] std::size_t operator[](std::size_t number) const noexcept {
        return _listed == nullptr ? number : _listed[number].index;
    }

private:
    PiecePosition const* _listed = nullptr;
    std::size_t _count;
};

/// @brief Owns the gradients of one parameter type: before their reduction the leases of a
/// micro-step and the buffer for copies of caller-owned gradients, after it the GradientSumStore.
/// The GradientScheduler decides when they are used.
template <class Config, class Types>
class GradientStore {
public:
    using G = typename Types::Gradient;
    using A = typename Types::Accumulation;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    [[gnu::cold]] explicit GradientStore(TypeContext<Config> const& context)
        : GradientStore(context, context.layout->trainable_buckets()) {}

    /// @brief Index of the parameter type.
    [[nodiscard]] std::size_t type() const noexcept { return _type; }

    /// @brief Whether a bucket is leased from its first writer to its reduction. Otherwise all its
    /// gradients are caller-owned, and `prepare` copies them, or they are reduced in place.
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

    /// @brief Whether a gradient in the engine's memory is in several buckets, so that it is
    /// written as a whole after the last of them, and copied into each before its reduction.
    [[nodiscard]] bool is_whole(std::size_t parameter) const noexcept {
        return !_wholes.empty() && _wholes[parameter] != 0;
    }

    /// @brief The memory to which the backward pass adds a parameter's gradient: caller-owned, or a
    /// piece of an open bucket, or after it. Null if the parameter is frozen or empty.
    [[nodiscard]] G* gradient(std::size_t parameter) const {
        auto const& spec = _layout->parameter(parameter);
        if (_callers[parameter] != nullptr || !spec.trainable || spec.elements == 0) {
            return _callers[parameter];
        }
        if (is_whole(parameter)) {
            return _pool.at(_layout->parameter_buckets(parameter).back()) + _wholes[parameter];
        }
        PiecePosition const position = _layout->parameter_pieces(parameter).front();
        return at(position.bucket, _layout->piece(position));
    }

    /// @brief What the encoding of gradients lost, with `ErrorFeedback`.
    [[nodiscard]] auto& errors() noexcept { return _sums.errors(); }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _copies.size_bytes() + _sums.table_bytes();
    }

    /// @brief The memory of a piece of an open bucket.
    [[nodiscard]] G* at(std::size_t bucket, Piece const& piece) const noexcept {
        return _pool.at(bucket) + piece.bucket_begin;
    }

    /// @brief The memory from which a bucket is reduced; open if it is leased.
    [[nodiscard]] G* source(std::size_t bucket) const noexcept {
        switch (_sources[bucket]) {
        case GradientSource::lease: return _pool.at(bucket);
        case GradientSource::copy: return _sums_in_leases ? _pool.place(bucket) : _copied.data();
        case GradientSource::block: break;
        }
        return _block + _layout->bucket(bucket).block_begin;
    }

    /// @brief The address of element `index` of a bucket of reduced gradients. Unless they are
    /// replicated, it must be in this rank's extent.
    [[nodiscard]] A* reduced(std::size_t bucket, std::size_t index) const noexcept {
        return _sums.at(bucket, index);
    }

    /// @brief Leases a bucket. Its parameters are cleared when they are first written. The padding
    /// keeps what the last user of the memory wrote: it is sent, but nothing reads it.
    void open(std::size_t bucket, Queue writer) {
        if (!_pool.claim(bucket)) {
            throw_no_room(*_layout, bucket, _rank);
        }
        G* const memory = _pool.open(bucket, writer, Fence::gradient_lease_reuse);
        poison_source(bucket, writer, memory,
                      _wholes.empty() ? 0 : whole_gradient_elements(*_layout, bucket));
    }

    /// @brief Keeps a transient gradient where it lies, if its reduction can read it there.
    /// @return false if it must be added
    [[nodiscard]] bool hold(std::size_t parameter, void const* gradient,
                            std::shared_ptr<void const> const& owner) {
        auto const pieces = _layout->parameter_pieces(parameter);
        if (!_sends_pieces || pieces.size() != 1) {
            return false;
        }
        _owned.hold(*_layout, pieces.front(), static_cast<G const*>(gradient), owner);
        _reads_in_place = true;
        return true;
    }

    /// @brief Copies a gradient that is kept where it lies into its lease, because more is added.
    void copy_held(std::size_t parameter, Queue writer) {
        for (PiecePosition const at : _layout->parameter_pieces(parameter)) {
            if (G const* const data = _owned.take(at); data != nullptr) {
                add(at.bucket, _layout->piece(at), data, writer, true);
            }
        }
    }

    /// @brief Ends the use of all gradients that are kept where they lie, after `read`.
    void end_held(Event const& read) { _owned.end_all(read); }

    /// @brief Waits until they were read, and drops their owners.
    void release_held() { _owned.release_all(); }

    void close(std::size_t bucket, Event last_use) { _pool.close(bucket, std::move(last_use)); }

    /// @brief Ends a step, whose update reads the sums until `updated`. Where they are in the
    /// leases, the backward pass of the next step waits for it.
    void end_step(Event const& updated) {
        if (_sums_in_leases) {
            _pool.extend_last_uses(updated);
        }
    }

    /// @brief Clears the gradients of chosen parameters in the source of a bucket. Pieces that
    /// follow one another are cleared by one command, together with the padding between them unless
    /// that is poisoned. O(`pieces`).
    template <class Chosen>
    void clear(std::size_t bucket, Queue writer, PieceIndices pieces, Chosen const& is_chosen) {
        auto const all = _layout->pieces(bucket);
        std::size_t next = 0; // index after the last chosen piece
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

    void clear_whole(std::size_t parameter, Queue writer) {
        Backend::fill(writer, gradient(parameter), _layout->parameter(parameter).elements, G{});
    }

    /// @brief Adds one piece of a transient gradient. @param gradient gradient of the whole
    /// parameter @param is_first whether it replaces what the memory has
    void add(std::size_t bucket, Piece const& piece, void const* gradient, Queue writer,
             bool is_first) {
        G* const sum = is_whole(piece.parameter)
                           ? this->gradient(piece.parameter) + piece.parameter_begin
                           : at(bucket, piece);
        auto const* const values = static_cast<G const*>(gradient) + piece.parameter_begin;
        if (is_first) {
            Backend::copy_bytes(writer, sum, values, piece.elements * sizeof(G));
        } else {
            Backend::accumulate(writer, sum, values, piece.elements);
        }
    }

    /// @brief Completes the source of a bucket before its reduction: copies caller-owned gradients
    /// into it unless they are reduced in place, adjacent ones by one command, and clears those
    /// that were not written.
    template <class Written>
    void prepare(std::size_t bucket, PieceIndices pieces, Written const& is_written) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        if (_sources[bucket] == GradientSource::copy) {
            poison_source(bucket, _queue, source(bucket));
        }
        std::size_t row = 0;   // in the bucket's table of copies
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
        for (std::size_t index = 0; !_wholes.empty() && index < pieces.size(); ++index) {
            Piece const& piece = _layout->pieces(bucket)[pieces[index]];
            if (is_whole(piece.parameter) && is_written(piece.parameter)) {
                Backend::copy_bytes(_queue, at(bucket, piece),
                                    gradient(piece.parameter) + piece.parameter_begin,
                                    piece.elements * sizeof(G));
            }
        }
        clear(bucket, _queue, pieces,
              [&](std::size_t parameter) { return !is_written(parameter); });
    }

    /// @brief Reduces caller-owned gradients of a bucket where they lie, those that were not
    /// written as zeros. Collective if it does.
    /// @return false if `prepare` and `take` must do it
    template <class Written>
    [[nodiscard]] bool take_in_place(std::size_t bucket, bool is_first, bool is_last,
                                     Written const& is_written) {
        if (!_reads_in_place) [[likely]] {
            return false;
        }
        return reduce_in_place(bucket, is_first, is_last, is_written);
    }

    /// @brief Consumes the source of a bucket: reduces it, or adds it to the accumulation buffer
    /// and reduces that in the last micro-step.
    void take(std::size_t bucket, bool is_first, bool is_last) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        G* const lease = source(bucket);
        if (is_sent(is_first, is_last)) {
            name_reductions(is_last);
            _sums.reduce(bucket, lease, is_first, is_first && is_last);
        } else {
            _sums.add(bucket, 0, lease, _layout->elements(bucket), is_first);
            if (is_last) {
                reduce_sum(bucket);
            }
        }
    }

    /// @brief Reduces the source of a bucket in a tree of micro-batches. Collective.
    void take_in_tree(std::size_t bucket, std::size_t micro_step) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        _sums.reduce_in_tree(bucket, source(bucket), micro_step);
    }

    /// @brief Reduces the accumulation buffer's bucket.
    void reduce_sum(std::size_t bucket) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        _sums.reduce(bucket, reduced(bucket, 0), true, true);
    }

    /// @brief Gathers the sums of all extents, for replicated gradients. Collective.
    void gather_sums(std::size_t bucket) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        _sums.gather(bucket);
    }

    /// @brief Adds this rank's sums of a bucket over the replicas. Collective.
    void add_over_replicas(std::size_t bucket) {
        [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
        _sums.add_over_replicas(bucket);
    }

private:
    using Sums = GradientSumStore<Config, Types>;

    /// Whether gradients are sent in a micro-step, not added to the accumulation buffer. If it is
    /// the only one, passing through that buffer would change no bit.
    [[nodiscard]] bool is_sent(bool is_first, bool is_last) const noexcept {
        return _schedule == ReductionSchedule::every_micro_step
               || (is_first && is_last && is_exact_conversion<A, G>);
    }

    /// Not inlined, so that steps without such gradients do not run through it.
    template <class Written>
    [[gnu::noinline]] bool reduce_in_place(std::size_t bucket, bool is_first, bool is_last,
                                           Written const& is_written) {
        if constexpr (Sums::can_send_pieces) {
            bool const is_owned = _owned.has(bucket);
            bool const is_taken =
                (is_owned ? !is_open(bucket) : _pieces.has(bucket)) && is_sent(is_first, is_last);
            [[maybe_unused]] BucketScope<Backend> const scope(*_layout, bucket);
            if (is_taken) {
                name_reductions(is_last);
                _sums.reduce(bucket,
                             is_owned ? _owned.of(bucket) : _pieces.of(bucket, _queue, is_written),
                             is_first);
            }
            if (is_owned) {
                end_owned(bucket, is_taken);
            }
            return is_taken;
        }
        return false;
    }

    /// Ends the gradients of a bucket that are kept where they lie, which are copied into its lease
    /// unless they were reduced.
    void end_owned(std::size_t bucket, bool is_reduced) {
        if (is_reduced) {
            _pool.unclaim(bucket);
        } else if (!is_open(bucket)) {
            open(bucket, _queue);
        }
        for (SentPiece const& piece : _owned.of(bucket).all) {
            if (!is_reduced && piece.data != nullptr) {
                Backend::copy_bytes(_queue, _pool.at(bucket) + piece.begin, piece.data,
                                    piece.elements * sizeof(G));
            }
        }
        _owned.end(bucket, Backend::record(_queue));
    }

    void name_reductions([[maybe_unused]] bool is_last) noexcept {
        if constexpr (GroupedCommunicator<typename Config::Communicator>) {
            if (_schedule == ReductionSchedule::every_micro_step) {
                _sums.name_reductions(is_last);
            }
        }
    }

    void clear_range(std::size_t bucket, Range const& range, Queue writer) {
        if (range.size() != 0) {
            Backend::fill(writer, source(bucket) + range.begin, range.size(), G{});
        }
    }

    /// With poison: fills the memory of a bucket with NaN, which stays in the padding.
    /// @param further elements after those of the bucket
    void poison_source(std::size_t bucket, Queue writer, G* memory, std::size_t further = 0) {
        if (_poison) {
            Backend::fill(writer, memory, _layout->elements(bucket) + further,
                          from_float<G>(std::numeric_limits<float>::quiet_NaN()));
        }
    }

    [[gnu::cold]] GradientStore(TypeContext<Config> const& context, std::size_t buckets)
        : _type(context.type), _layout(context.layout), _queue(context.queue),
          _rank(context.rank()), _schedule(context.schedule), _poison(context.options->poison),
          _sums_in_leases(Sums::sums_in_leases(context, context.type)),
          _pool(_sums_in_leases ? plan_gradient_sums(*_layout, context.type)
                                : context.gradient_leases(context.type),
                *context.memory,
                _sums_in_leases ? BufferKind::gradients : BufferKind::gradient_leases),
          _copied(*context.memory,
                  _sums_in_leases || Sums::sends_only_pieces(context)
                      ? 0
                      : copied_gradient_elements(*_layout, context.type),
                  BufferKind::gradient_leases),
          _sums(context, buckets), _drain(context.queue) {
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
        find_wholes();
        if (_sums.sums_in_sources()) {
            List<G*> sources;
            for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
                sources.push_back(_sums_in_leases ? _pool.place(bucket) : source(bucket));
            }
            _sums.use_sources(std::move(sources));
        }
        _sends_pieces = Sums::sends_pieces(context);
        if (_sends_pieces) {
            _pieces = {*_layout, _callers, [&](std::size_t bucket) {
                           return _layout->bucket(bucket).type == _type
                                  && _sources[bucket] == GradientSource::copy;
                       }};
        }
        _reads_in_place = !_pieces.is_empty();
        _copies = {*_layout, _queue, *context.memory, _callers, [&](std::size_t bucket) {
                       return bucket < buckets && _sources[bucket] != GradientSource::block
                                  ? Range{0, _layout->elements(bucket)}
                                  : Range{};
                   }};
        _pool.fill(_queue, G{}); // padding is sent, so it must have a value
        Backend::fill(_queue, _copied.data(), _copied.size(), G{});
    }

    /// Places whole gradients one after the other, after the elements of their last buckets.
    [[gnu::cold]] void find_wholes() {
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            std::size_t end = padded_size(_layout->elements(bucket));
            for (std::size_t index = 0; index < _layout->pieces(bucket).size(); ++index) {
                PiecePosition const at{bucket, index};
                if (std::size_t const elements = whole_gradient_elements(*_layout, at);
                    elements != 0) {
                    _wholes.resize(_layout->parameters().size(), 0);
                    _wholes[_layout->piece(at).parameter] = end;
                    end += elements;
                }
            }
        }
    }

    std::size_t _type;
    FlatLayout const* _layout;
    Queue _queue;
    std::size_t _rank;
    ReductionSchedule _schedule;
    bool _poison;
    bool _sums_in_leases;         ///< see GradientSumStore
    bool _sends_pieces = false;   ///< see GradientSumStore
    bool _reads_in_place = false; ///< some gradients are caller-owned or have an owner
    BucketPool<G, Backend> _pool;
    Buffer<G> _copied; ///< source of buckets with caller-owned gradients only, one at a time
    Sums _sums;
    G* _block = nullptr;                ///< the caller's block of gradients, if there is one
    List<G*> _callers;                  ///< per parameter: its caller-owned gradient, or null
    std::vector<std::size_t> _wholes;   ///< per parameter: offset of its whole gradient from the
                                        ///< memory of its last bucket, 0: it has none; empty: none
                                        ///< has one
    List<GradientSource> _sources;      ///< per trainable bucket
    BucketCopies<G, Backend> _copies;   ///< rows of caller-owned gradients that are copied
    GradientPieces<G, Backend> _pieces; ///< those that are sent where they lie
    OwnedGradients<G, Backend> _owned;
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
