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
#include "../../../ops/codec.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Gathers buckets of trainable parameters in codes: encodes this rank's extent, gathers the
/// bytes, and decodes all pieces, its own as well. A member of ParameterStore.
///
/// All commands are enqueued on the queue of communication, so one buffer of the largest bucket
/// suffices. A block of codes belongs to one parameter, since parameters and extents begin at
/// multiples of 64 in a bucket. Blocks that hold padding only are sent as zeros and never decoded.
template <class Config, class Types>
class EncodedWeights {
public:
    using T = typename Types::Parameter;
    using C = typename Types::WeightCodec;
    using Backend = typename Config::Backend;

    EncodedWeights() = default;

    /// @param own `own(bucket, piece)` is the memory of a piece of this rank's extent
    /// @param all `all(bucket, piece)` is that of a whole piece on every rank; null: in the lease
    template <class Own, class All>
    [[gnu::cold]] EncodedWeights(TypeContext<Config> const& context, Own const& own, All const& all)
        : _layout(context.layout), _communicator(context.communicator), _queue(context.queue),
          _rank(context.shard_rank()), _cuts(_layout->world() + 1, 0),
          _codes(*context.memory, row(context, context.type).bytes(), BufferKind::weight_codes) {
        List<CopySlice<T>> sent;
        List<CopySlice<T>> received;
        for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
            _first_sent.push_back(sent.size());
            _first_received.push_back(received.size());
            _first_gap.push_back(_gaps.size());
            if (!encodes(bucket) || _layout->bucket(bucket).type != context.type) {
                continue;
            }
            Range const extent = _layout->extent(bucket, _rank);
            std::size_t end = extent.begin;
            _layout->for_slices(bucket, extent, [&](Piece const& piece) {
                sent.push_back({own(bucket, piece), piece.bucket_begin, piece.elements});
                add_gap({end, piece.bucket_begin});
                end = piece.bucket_begin + round_up(piece.elements);
            });
            add_gap({end, extent.end});
            for (Piece const& piece : _layout->pieces(bucket)) {
                received.push_back({all(bucket, piece), piece.bucket_begin, piece.elements});
            }
        }
        _first_sent.push_back(sent.size());
        _first_received.push_back(received.size());
        _first_gap.push_back(_gaps.size());
        _sent = {_queue, *context.memory, std::move(sent)};
        _received = {_queue, *context.memory, std::move(received)};
    }

    /// @brief Returns the row of the memory plan.
    [[nodiscard]] static MemoryRow row(EngineContext<Config> const& context, std::size_t type) {
        return context.row.shards_optimizer()
                   ? plan_weight_codes(*context.layout, C::bytes_per_block, type)
                   : MemoryRow{};
    }

    /// @brief Returns whether a bucket travels in codes. Frozen parameters do not: in stages 1 and
    /// 2 they would lose bits.
    [[nodiscard]] bool encodes(std::size_t bucket) const noexcept {
        return _layout->bucket(bucket).trainable;
    }

    /// @brief Gathers a bucket. Collective.
    /// @param lease where pieces without an address are
    void gather(std::size_t bucket, T* lease, CollectiveTag const& tag) {
        Cuts const cuts = _layout->cuts(bucket);
        if (cuts.back() == 0) {
            return;
        }
        for (std::size_t rank = 0; rank < _cuts.size(); ++rank) {
            _cuts[rank] = bytes_of(cuts[rank]);
        }
        Backend::template encode<C>(_queue, slices(_sent, _first_sent, bucket), _codes.data());
        for (std::size_t gap = _first_gap[bucket]; gap < _first_gap[bucket + 1]; ++gap) {
            Backend::fill(_queue, _codes.data() + _gaps[gap].begin, _gaps[gap].size(),
                          std::uint8_t{0});
        }
        std::uint8_t const* const own = _codes.data() + _cuts[_rank];
        shard_of(*_communicator).all_gather(own, _codes.data(), as_span(_cuts), _queue, tag);
        Backend::template decode<C>(_queue, slices(_received, _first_received, bucket),
                                    static_cast<std::uint8_t const*>(_codes.data()), lease);
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _sent.size_bytes() + _received.size_bytes();
    }

private:
    using Table = typename Backend::template SliceTable<CopySlice<T>>;

    [[nodiscard]] static constexpr std::size_t round_up(std::size_t elements) noexcept {
        return (elements + coded_elements - 1) / coded_elements * coded_elements;
    }

    [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t elements) noexcept {
        return elements / coded_elements * C::bytes_per_block;
    }

    [[nodiscard]] static auto slices(Table const& table, std::vector<std::size_t> const& first,
                                     std::size_t bucket) noexcept {
        return table.range(first[bucket], first[bucket + 1] - first[bucket]);
    }

    void add_gap(Range elements) {
        if (elements.begin < elements.end) {
            _gaps.push_back({bytes_of(elements.begin), bytes_of(elements.end)});
        }
    }

    FlatLayout const* _layout = nullptr;
    typename Config::Communicator* _communicator = nullptr;
    typename Backend::Queue _queue{};
    std::size_t _rank = 0;
    std::vector<std::size_t> _cuts; ///< of the bucket that is gathered, in bytes
    Buffer<std::uint8_t> _codes;    ///< of the bucket that is gathered
    Table _sent;                    ///< slices of this rank's extents
    Table _received;                ///< all pieces
    List<Range> _gaps;              ///< bytes of this rank's extents that belong to no parameter
    std::vector<std::size_t> _first_sent; ///< by bucket: index of its first slice; then the total
    std::vector<std::size_t> _first_received;
    std::vector<std::size_t> _first_gap;
};

} // namespace ZERO_NAMESPACE::detail
