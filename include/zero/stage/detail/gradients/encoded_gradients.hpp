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
#include "../../../layout/wire_chunk.hpp"
#include "../../../ops/codec.hpp"
#include "../common/bucket_scope.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

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

    [[gnu::cold]] explicit EncodedGradients(TypeContext<Config> const& context)
        : _layout(context.layout), _communicator(context.communicator), _queue(context.queue),
          _rank(context.shard_rank()), _capacity(capacity(context)), _cuts(_layout->world() + 1, 0),
          _codes(*context.memory, row(context, context.type).bytes(), BufferKind::wire) {
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
            Backend::template encode<C>(_queue, _sent.range(begin.sent, end.sent - begin.sent),
                                        source, _codes.data());
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
        return _sent.size_bytes() + _received.size_bytes();
    }

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
    Table _sent;                    ///< pieces of all extents, chunk by chunk
    Table _received;                ///< pieces of this rank's extents
    List<Range> _gaps;              ///< bytes of chunks that belong to no parameter
    List<Chunk> _chunks;            ///< of all buckets, and the ends of the last
    std::vector<std::size_t> _first_chunk; ///< by bucket, and the number of all
};

} // namespace ZERO_NAMESPACE::detail
