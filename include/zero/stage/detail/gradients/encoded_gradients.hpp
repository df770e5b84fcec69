#pragma once

#include "../../../backend/slices.hpp"
#include "../../../comm/collective_tag.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/host_device.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/cuts.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../layout/wire_chunk.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/codec.hpp"
#include "../../../policy/wire.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../memory/placed_buffer.hpp"
#include "replica_sum_store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The errors of encoded gradients, as the queue sees them. Only its commands write it.
struct ErrorState {
    float scale = 1.0F;     ///< the loss scale that is in the errors
    float factor = 1.0F;    ///< multiplies them in the first reduction of the step
    bool is_cleared = true; ///< they count as 0 in the next step
};

/// @brief Begins a step: its gradients may have another loss scale.
struct RescaleErrors {
    ErrorState* state;
    float const* loss_scale;
    ZERO_HOST_DEVICE void operator()() const {
        state->factor = state->is_cleared ? 0.0F : ops::div(*loss_scale, state->scale);
        state->scale = *loss_scale;
        state->is_cleared = false;
    }
};

/// @brief Ends a step that was decided.
template <class Step>
struct EndErrors {
    ErrorState* state;
    StepState<Step> const* step;
    std::uint64_t reset_every;
    ZERO_HOST_DEVICE void operator()() const {
        state->is_cleared = step->decision.skip || step->step_count % reset_every == 0;
    }
};

/// @brief Keeps what the encoding of this rank's gradients lost, with `ErrorFeedback`. A member of
/// EncodedGradients. The first reduction of a step reads the errors of the step before, scaled to
/// its loss scale, and later ones those of the micro-step before.
template <class Config, class Types, class Feedback>
class GradientErrors {
public:
    using S = typename Feedback::Storage;
    using E = std::conditional_t<std::is_same_v<S, float>, float, std::uint8_t>;
    using State = ErrorState;
    using Backend = typename Config::Backend;

    [[gnu::cold]] explicit GradientErrors(TypeContext<Config> const& context)
        : _queue(context.queue), _options(&context.options->feedback),
          _offsets(*context.layout, context.layout->trainable_buckets(), context.type, 0,
                   Placement::replicated),
          _errors(*context.memory, row(*context.layout, context.type).bytes() / sizeof(E),
                  BufferKind::gradient_errors),
          _state(*context.memory, 1, BufferKind::control) {
        Backend::fill(_queue, _errors.data(), _errors.size(), E{});
        Backend::run(_queue, Assign<ErrorState>{_state.data(), ErrorState{}});
    }

    /// @brief Returns the row of the memory plan.
    [[nodiscard]] static MemoryRow row(FlatLayout const& layout, std::size_t type) {
        return plan_gradient_errors(layout, coded_elements / item_elements * item_bytes, type);
    }

    void begin_step(float const* loss_scale) {
        Backend::run(_queue, RescaleErrors{_state.data(), loss_scale});
    }
    void end_step(StepState<StepOf<Config>> const* step) {
        Backend::run(_queue, EndErrors<StepOf<Config>>{_state.data(), step, _options->reset_every});
    }
    void clear() { Backend::run(_queue, Assign<bool>{&_state.data()->is_cleared, true}); }

    /// @brief Elements of an item, and its bytes: a float, or a block of codes.
    static constexpr std::size_t item_elements = std::is_same_v<S, float> ? 1 : coded_elements;
    static constexpr std::size_t item_bytes = [] {
        if constexpr (std::is_same_v<S, float>) {
            return sizeof(float);
        } else {
            return S::bytes_per_block;
        }
    }();

    /// @brief Returns the address of the item that begins with element `index` of a bucket.
    [[nodiscard]] E* at(std::size_t bucket, std::size_t index) const noexcept {
        std::size_t const item = (_offsets.at(bucket, 0) + index) / item_elements;
        return _errors.data() + item * item_bytes / sizeof(E);
    }

    /// @brief Takes the memory of the errors, for a rebuild that moves them to other stores.
    [[nodiscard]] std::shared_ptr<void const> take() {
        return std::make_shared<Buffer<E> const>(std::move(_errors));
    }

    /// @brief The state, in the backend's memory, and its change by a command.
    [[nodiscard]] ErrorState const* state() const noexcept { return _state.data(); }
    void set(ErrorState const& state) {
        Backend::run(_queue, Assign<ErrorState>{_state.data(), state});
    }

    template <class C, class Slices, class From>
    void encode(std::size_t bucket, Slices const& slices, From const* source, std::uint8_t* codes,
                bool is_first) {
        CodedErrors<E> const errors{at(bucket, 0), is_first ? &_state.data()->factor : nullptr,
                                    _options->beta};
        Backend::template encode_with_feedback<C, S>(_queue, slices, source, codes, errors);
    }

    [[nodiscard]] std::size_t control_bytes() const noexcept { return _state.size_bytes(); }

private:
    typename Backend::Queue _queue;
    ErrorFeedbackOptions const* _options;
    PlacedOffsets _offsets;
    Buffer<E> _errors;
    Buffer<ErrorState> _state;
};

/// @brief Keeps nothing.
template <class Config, class Types>
class GradientErrors<Config, Types, NoFeedback> {
public:
    explicit GradientErrors(TypeContext<Config> const& context) noexcept : _queue(context.queue) {}

    [[nodiscard]] static MemoryRow row(FlatLayout const& /*layout*/, std::size_t /*type*/) {
        return {};
    }

    template <class C, class Slices, class From>
    void encode(std::size_t /*bucket*/, Slices const& slices, From const* source,
                std::uint8_t* codes, bool /*is_first*/) {
        Config::Backend::template encode<C>(_queue, slices, source, codes);
    }

    [[nodiscard]] static constexpr std::size_t control_bytes() noexcept { return 0; }

private:
    typename Config::Backend::Queue _queue;
};

/// @brief Adds values over ranks in codes: encodes the parts of all ranks, exchanges the bytes,
/// decodes what this rank received for its part, its own as well, and adds in float in rank order.
///
/// All commands are enqueued on the queue of communication, so two buffers of one chunk suffice. A
/// block of codes belongs to one parameter, since parameters and parts begin at multiples of 64 in
/// a bucket, and so do chunks. Blocks that hold padding only are sent as zeros and never decoded.
/// @tparam gathers whether every rank gets the sums of all parts: as they come out of their codes,
/// so that all ranks have the same bits. Otherwise a rank gets those of its own part
template <class Config, class C, class A, bool gathers>
class CodedSums {
public:
    using Backend = typename Config::Backend;
    using Part = ShardOf<typename Config::Communicator>;

    /// @param parts_of `parts_of(bucket)` is what the ranks add
    /// @param bytes of both buffers
    template <class Parts>
    [[gnu::cold]] CodedSums(TypeContext<Config> const& context, Part& ranks, std::size_t bytes,
                            Parts const& parts_of)
        : _ranks(&ranks), _queue(context.queue), _rank(static_cast<std::size_t>(ranks.rank())),
          _capacity(coded_capacity(context.options->reduction.wire_bytes, C::bytes_per_block)),
          _cuts(static_cast<std::size_t>(ranks.size()) + 1, 0),
          _codes(*context.memory, bytes, BufferKind::wire) {
        List<CodedSlice> sent;
        List<CodedSlice> received;
        FlatLayout const& layout = *context.layout;
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            _first_chunk.push_back(_chunks.size());
            if (layout.bucket(bucket).type != context.type) {
                continue;
            }
            CodedParts const parts = parts_of(bucket);
            for (std::size_t chunk = 0; chunk < exchange_chunks(parts.cuts, _capacity); ++chunk) {
                _chunks.push_back({sent.size(), 0, received.size(), _gaps.size()});
                std::size_t const end = add_chunk(layout, bucket, parts, chunk, sent, received);
                _most_sent = larger(_most_sent, bytes_of(end));
            }
        }
        _first_chunk.push_back(_chunks.size());
        _chunks.push_back({sent.size(), 0, received.size(), _gaps.size()});
        _sent = {_queue, *context.memory, std::move(sent)};
        _received = {_queue, *context.memory, std::move(received)};
    }

    /// @brief Adds a bucket over the ranks. Collective.
    /// @param encode `encode(slices, codes)` encodes slices of the range
    /// @param sums of this rank's part, or of the whole range if it `gathers`: replaced if
    /// `is_first`, otherwise added to
    template <class Encode>
    void reduce(std::size_t bucket, CodedParts const& parts, Encode const& encode, A* sums,
                bool is_first, CollectiveTag const& tag) {
        std::size_t const ranks = _cuts.size() - 1;
        std::size_t const stride = exchange_stride(parts.cuts, _capacity);
        std::uint8_t* const codes = _codes.data();
        std::uint8_t* const received = codes + _most_sent;
        for (std::size_t chunk = _first_chunk[bucket]; chunk < _first_chunk[bucket + 1]; ++chunk) {
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                Range const part = parts.chunk(rank, stride, chunk - _first_chunk[bucket]);
                _cuts[rank + 1] = _cuts[rank] + bytes_of(part.size());
            }
            Chunk const& begin = _chunks[chunk];
            Chunk const& end = _chunks[chunk + 1];
            auto const all = _sent.range(begin.sent, end.sent - begin.sent);
            std::size_t const own = end.received - begin.received; // slices
            encode(all, codes);
            for (std::size_t gap = begin.gap; gap < end.gap; ++gap) {
                Backend::fill(_queue, codes + _gaps[gap].begin, _gaps[gap].size(), std::uint8_t{0});
            }
            _ranks->exchange(static_cast<std::uint8_t const*>(codes), received, as_span(_cuts),
                             _queue, tag);
            if (own != 0) {
                decode({ranks, _cuts[_rank + 1] - _cuts[_rank]},
                       _received.range(begin.received, own), received, sums, !is_first);
            }
            if constexpr (gathers) {
                if (own != 0) {
                    encode(_sent.range(begin.own, own), codes);
                }
                std::uint8_t const* const part = codes + _cuts[_rank];
                _ranks->all_gather(part, codes, as_span(_cuts), _queue, tag);
                if (end.sent != begin.sent) {
                    decode({1, 0}, all, codes, sums, false);
                }
            }
        }
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _sent.size_bytes() + _received.size_bytes();
    }

private:
    using Table = typename Backend::template SliceTable<CodedSlice>;

    /// Indices of the first entries of a chunk.
    struct Chunk {
        std::size_t sent;
        std::size_t own; ///< of those that are sent, the first of this rank's part
        std::size_t received;
        std::size_t gap;
    };

    [[nodiscard]] static constexpr std::size_t round_up(std::size_t elements) noexcept {
        return (elements + coded_elements - 1) / coded_elements * coded_elements;
    }

    [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t elements) noexcept {
        return elements / coded_elements * C::bytes_per_block;
    }

    template <class Slices>
    void decode(CodedPieces const& pieces, Slices const& slices, std::uint8_t const* codes, A* sums,
                bool accumulates) {
        Backend::template decode_sum<C>(_queue, slices, codes, pieces, sums, accumulates);
    }

    /// Adds the entries of a chunk: the same part of every rank's, one after another.
    /// @return elements of the chunk
    [[gnu::cold]] std::size_t add_chunk(FlatLayout const& layout, std::size_t bucket,
                                        CodedParts const& parts, std::size_t chunk,
                                        List<CodedSlice>& sent, List<CodedSlice>& received) {
        std::size_t const stride = exchange_stride(parts.cuts, _capacity);
        // where what is written begins, in the bucket
        std::size_t const result =
            gathers ? parts.range.begin : parts.chunk(_rank, stride, 0).begin;
        std::size_t first = 0; // of the part of a rank, in the chunk
        for (std::size_t rank = 0; rank + 1 < _cuts.size(); ++rank) {
            Range const part = parts.chunk(rank, stride, chunk);
            std::size_t end = 0; // of what is sent, in the part
            if (rank == _rank) {
                _chunks[_chunks.size() - 1].own = sent.size();
            }
            layout.for_slices(bucket, part, [&](Piece const& piece) {
                std::size_t const in_part = piece.bucket_begin - part.begin;
                sent.push_back({piece.bucket_begin - parts.range.begin,
                                (first + in_part) / coded_elements, piece.elements});
                if (rank == _rank) {
                    received.push_back(
                        {piece.bucket_begin - result, in_part / coded_elements, piece.elements});
                }
                add_gap(first + end, first + in_part);
                end = in_part + round_up(piece.elements);
            });
            add_gap(first + end, first + part.size());
            first += part.size();
        }
        return first;
    }

    void add_gap(std::size_t begin, std::size_t end) {
        if (begin < end) {
            _gaps.push_back({bytes_of(begin), bytes_of(end)});
        }
    }

    Part* _ranks;
    typename Backend::Queue _queue;
    std::size_t _rank;              ///< this one's number among them
    std::size_t _capacity;          ///< elements of either buffer
    std::size_t _most_sent = 0;     ///< bytes of the largest chunk; what is received lies behind it
    std::vector<std::size_t> _cuts; ///< of the chunk that is sent, in bytes
    Buffer<std::uint8_t> _codes;    ///< what is sent, then what is received
    Table _sent;                    ///< pieces of all parts, chunk by chunk
    Table _received;                ///< pieces of this rank's parts
    List<Range> _gaps;              ///< bytes of chunks that belong to no parameter
    List<Chunk> _chunks;            ///< of all buckets, and the ends of the last
    std::vector<std::size_t> _first_chunk; ///< by bucket, and the number of all
};

/// @brief Reduces buckets of gradients in codes to this rank's extent. A member of
/// GradientSumStore.
template <class Config, class Types>
class EncodedGradients {
public:
    using A = typename Types::Accumulation;
    using C = typename Types::GradientCodec;
    using Errors = GradientErrors<Config, Types, typename Types::Feedback>;

    [[gnu::cold]] explicit EncodedGradients(TypeContext<Config> const& context)
        : _layout(context.layout),
          _sums(context, shard_of(*context.communicator), row(context, context.type).bytes(),
                [&](std::size_t bucket) { return parts_of_ranks(*context.layout, bucket); }),
          _errors(context) {}

    /// @brief Returns the row `wire` of the memory plan.
    [[nodiscard]] static MemoryRow row(EngineContext<Config> const& context, std::size_t type) {
        return plan_gradient_codes(*context.layout, context.shard_rank(), C::bytes_per_block,
                                   context.options->reduction.wire_bytes, type);
    }

    /// @brief Reduces a bucket to this rank's extent. Collective.
    /// @param source the bucket
    /// @param sums of this rank's extent: replaced if `is_first`, otherwise added to
    template <class From>
    void reduce(std::size_t bucket, From const* source, A* sums, bool is_first,
                CollectiveTag const& tag) {
        auto const encode = [&](auto const& slices, std::uint8_t* codes) {
            _errors.template encode<C>(bucket, slices, source, codes, is_first);
        };
        _sums.reduce(bucket, parts_of_ranks(*_layout, bucket), encode, sums, is_first, tag);
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _sums.table_bytes() + _errors.control_bytes();
    }

    /// @brief The errors that are kept.
    [[nodiscard]] Errors& errors() noexcept { return _errors; }

private:
    FlatLayout const* _layout;
    CodedSums<Config, C, A, false> _sums;
    Errors _errors;
};

/// @brief Adds the sums of a step over the replicas in codes: each rank those of its own extents,
/// with the ranks that own the same. A member of GradientSumStore.
template <class Config, class Types>
class EncodedReplicaSums : public ReductionNames {
public:
    using A = typename Types::Accumulation;
    using C = typename Types::ReplicaCodec;
    using Backend = typename Config::Backend;

    [[gnu::cold]] explicit EncodedReplicaSums(TypeContext<Config> const& context)
        : _layout(context.layout), _queue(context.queue), _rank(context.shard_rank()),
          _replicas(static_cast<std::size_t>(context.communicator->replicas().size())),
          _sums(context, context.communicator->replicas(), buffer_bytes(context, context.type),
                [this](std::size_t bucket) { return parts(bucket); }) {}

    /// @brief Returns the bytes of the buffers.
    [[nodiscard]] static std::size_t buffer_bytes(EngineContext<Config> const& context,
                                                  std::size_t type) {
        auto& replicas = context.communicator->replicas();
        return plan_replica_codes(*context.layout, context.shard_rank(),
                                  context.communicator->replica(),
                                  static_cast<std::size_t>(replicas.size()), C::bytes_per_block,
                                  context.options->reduction.wire_bytes, type)
            .bytes();
    }

    /// @brief Adds the sums of this rank's extent of a bucket over the replicas, in place.
    /// Collective.
    void add_up(std::size_t bucket, A* sums, CollectiveTag const& tag) {
        auto const encode = [&](auto const& slices, std::uint8_t* codes) {
            Backend::template encode<C>(_queue, slices, static_cast<A const*>(sums), codes);
        };
        _sums.reduce(bucket, parts(bucket), encode, sums, true, tag);
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept { return _sums.table_bytes(); }

private:
    [[nodiscard]] CodedParts parts(std::size_t bucket) const noexcept {
        return parts_of_replicas(*_layout, bucket, _rank, _replicas);
    }

    FlatLayout const* _layout;
    typename Backend::Queue _queue;
    std::size_t _rank;     ///< among those over which gradients are cut
    std::size_t _replicas; ///< their number
    CodedSums<Config, C, A, true> _sums;
};

} // namespace ZERO_NAMESPACE::detail
