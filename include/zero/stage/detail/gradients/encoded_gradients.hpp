#pragma once

#include "../../../backend/slices.hpp"
#include "../../../comm/collective_tag.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/cuts.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/placement.hpp"
#include "../../../layout/wire_chunk.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/codec.hpp"
#include "../../../ops/host_device.hpp"
#include "../../../policy/wire.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../memory/placed_buffer.hpp"

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
template <class Config>
struct EndErrors {
    ErrorState* state;
    StepState<Config> const* step;
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
    void end_step(StepState<Config> const* step) {
        Backend::run(_queue, EndErrors<Config>{_state.data(), step, _options->reset_every});
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

/// @brief Reduces buckets of gradients in codes: encodes the pieces of all ranks, exchanges the
/// bytes, decodes the pieces of this rank's extent, its own as well, and adds them in float in rank
/// order. A member of GradientSumStore.
///
/// All commands are enqueued on the queue of communication, so two buffers of one chunk suffice. A
/// block of codes belongs to one parameter, since parameters and extents begin at multiples of 64
/// in a bucket, and so do chunks. Blocks that hold padding only are sent as zeros and never
/// decoded.
template <class Config, class Types>
class EncodedGradients {
public:
    using A = typename Types::Accumulation;
    using C = typename Types::GradientCodec;
    using Backend = typename Config::Backend;
    using Errors = GradientErrors<Config, Types, typename Types::Feedback>;

    [[gnu::cold]] explicit EncodedGradients(TypeContext<Config> const& context)
        : _layout(context.layout), _communicator(context.communicator), _queue(context.queue),
          _rank(context.shard_rank()), _capacity(capacity(context)), _cuts(_layout->world() + 1, 0),
          _codes(*context.memory, row(context, context.type).bytes(), BufferKind::wire),
          _errors(context) {
        List<CodedSlice> sent;
        List<CodedSlice> received;
        for (std::size_t bucket = 0; bucket < _layout->trainable_buckets(); ++bucket) {
            _first_chunk.push_back(_chunks.size());
            if (_layout->bucket(bucket).type != context.type) {
                continue;
            }
            Cuts const cuts = _layout->cuts(bucket);
            for (std::size_t chunk = 0; chunk < exchange_chunks(cuts, _capacity); ++chunk) {
                Chunk const begin{sent.size(), received.size(), _gaps.size()};
                _chunks.push_back(begin);
                std::size_t const end = add_chunk(bucket, chunk, sent, received);
                _most_sent = larger(_most_sent, bytes_of(end));
            }
        }
        _first_chunk.push_back(_chunks.size());
        _chunks.push_back({sent.size(), received.size(), _gaps.size()});
        _sent = {_queue, *context.memory, std::move(sent)};
        _received = {_queue, *context.memory, std::move(received)};
    }

    /// @brief Returns the row `wire` of the memory plan.
    [[nodiscard]] static MemoryRow row(EngineContext<Config> const& context, std::size_t type) {
        return plan_gradient_codes(*context.layout, context.shard_rank(), C::bytes_per_block,
                                   context.options->reduction.wire_bytes, type);
    }

    /// @brief Reduces a bucket to this rank's extent. Collective.
    /// @param source the bucket
    /// @param sums of this rank's extent: replaced if `is_first`, otherwise added to
    template <class From>
    void reduce(std::size_t bucket, From const* source, A* sums, bool is_first) {
        CollectiveTag const tag =
            bucket_tag(CollectivePurpose::reduce, "encoded gradients of bucket", *_layout, bucket);
        Cuts const cuts = _layout->cuts(bucket);
        std::size_t const stride = exchange_stride(cuts, _capacity);
        std::uint8_t* const received = _codes.data() + _most_sent;
        for (std::size_t chunk = _first_chunk[bucket]; chunk < _first_chunk[bucket + 1]; ++chunk) {
            std::size_t const number = chunk - _first_chunk[bucket];
            for (std::size_t rank = 0; rank < _layout->world(); ++rank) {
                Range const part = wire_part(cuts[rank], cuts[rank + 1], stride, number);
                _cuts[rank + 1] = _cuts[rank] + bytes_of(part.size());
            }
            Chunk const& begin = _chunks[chunk];
            Chunk const& end = _chunks[chunk + 1];
            auto const sent = _sent.range(begin.sent, end.sent - begin.sent);
            _errors.template encode<C>(bucket, sent, source, _codes.data(), is_first);
            for (std::size_t gap = begin.gap; gap < end.gap; ++gap) {
                Backend::fill(_queue, _codes.data() + _gaps[gap].begin, _gaps[gap].size(),
                              std::uint8_t{0});
            }
            shard_of(*_communicator)
                .exchange(static_cast<std::uint8_t const*>(_codes.data()), received, as_span(_cuts),
                          _queue, tag);
            if (end.received != begin.received) {
                CodedPieces const pieces{_layout->world(), _cuts[_rank + 1] - _cuts[_rank]};
                Backend::template decode_sum<C>(
                    _queue, _received.range(begin.received, end.received - begin.received),
                    static_cast<std::uint8_t const*>(received), pieces,
                    sums + wire_part(cuts[_rank], cuts[_rank + 1], stride, number).begin,
                    !is_first);
            }
        }
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _sent.size_bytes() + _received.size_bytes() + _errors.control_bytes();
    }

    /// @brief The errors that are kept.
    [[nodiscard]] Errors& errors() noexcept { return _errors; }

private:
    using Table = typename Backend::template SliceTable<CodedSlice>;

    /// Indices of the first entries of a chunk.
    struct Chunk {
        std::size_t sent;
        std::size_t received;
        std::size_t gap;
    };

    static std::size_t capacity(EngineContext<Config> const& context) {
        return coded_capacity(context.options->reduction.wire_bytes, C::bytes_per_block);
    }

    [[nodiscard]] static constexpr std::size_t round_up(std::size_t elements) noexcept {
        return (elements + coded_elements - 1) / coded_elements * coded_elements;
    }

    [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t elements) noexcept {
        return elements / coded_elements * C::bytes_per_block;
    }

    /// Adds the entries of a chunk: the same part of every extent, one after another.
    /// @return elements of the chunk
    [[gnu::cold]] std::size_t add_chunk(std::size_t bucket, std::size_t chunk,
                                        List<CodedSlice>& sent, List<CodedSlice>& received) {
        Cuts const cuts = _layout->cuts(bucket);
        std::size_t const stride = exchange_stride(cuts, _capacity);
        std::size_t first = 0; // of the part of a rank, in the chunk
        for (std::size_t rank = 0; rank < _layout->world(); ++rank) {
            Range const part = wire_part(cuts[rank], cuts[rank + 1], stride, chunk);
            std::size_t const begin = cuts[rank] + part.begin; // in the bucket
            std::size_t end = 0;                               // of what is sent, in the part
            _layout->for_slices(bucket, {begin, begin + part.size()}, [&](Piece const& piece) {
                std::size_t const in_part = piece.bucket_begin - begin;
                sent.push_back(
                    {piece.bucket_begin, (first + in_part) / coded_elements, piece.elements});
                if (rank == _rank) {
                    received.push_back({in_part, in_part / coded_elements, piece.elements});
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

    FlatLayout const* _layout;
    typename Config::Communicator* _communicator;
    typename Backend::Queue _queue;
    std::size_t _rank;              ///< among those over which gradients are cut
    std::size_t _capacity;          ///< elements of either buffer
    std::size_t _most_sent = 0;     ///< bytes of the largest chunk; what is received lies behind it
    std::vector<std::size_t> _cuts; ///< of the chunk that is sent, in bytes
    Buffer<std::uint8_t> _codes;    ///< what is sent, then what is received
    Errors _errors;
    Table _sent;                           ///< pieces of all extents, chunk by chunk
    Table _received;                       ///< pieces of this rank's extents
    List<Range> _gaps;                     ///< bytes of chunks that belong to no parameter
    List<Chunk> _chunks;                   ///< of all buckets, and the ends of the last
    std::vector<std::size_t> _first_chunk; ///< by bucket, and the number of all
};

} // namespace ZERO_NAMESPACE::detail
