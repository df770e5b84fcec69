#pragma once

#include "../../../backend/slices.hpp"
#include "../../../comm/collective_tag.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/cuts.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/padding.hpp"
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
/// bytes, and decodes all pieces, its own as well. For frozen parameters it owns the codes of the
/// extents, which are written between steps only. A member of ParameterStore.
///
/// All gathers are enqueued on one queue, so one buffer of the largest bucket suffices. A block of
/// codes belongs to one parameter, since parameters and extents begin at multiples of 64 in a
/// bucket. Blocks that hold padding only are sent as zeros and never decoded.
/// @tparam C the codec
template <class Config, class Types, class C, bool is_frozen>
class EncodedWeights {
public:
    using T = typename Types::Parameter;
    using Backend = typename Config::Backend;

    EncodedWeights() = default;

    /// @param own `own(bucket, piece)` is the memory of a piece of this rank's extent, unless it
    /// lies in codes
    /// @param all `all(bucket, piece)` is that of a whole piece on every rank; null: in the lease
    template <class Own, class All>
    [[gnu::cold]] EncodedWeights(TypeContext<Config> const& context, Own const& own, All const& all)
        : _layout(context.layout), _queue(context.queue), _memory(context.memory),
          _rank(context.shard_rank()), _cuts(_layout->world() + 1, 0),
          _codes(*context.memory, row(context, context.type).bytes(), BufferKind::weight_codes),
          _kept(*context.memory, kept_row(context, context.type).bytes(), BufferKind::parameters) {
        List<CopySlice<T>> sent;
        List<CopySlice<T>> received;
        std::size_t kept = 0;
        for (std::size_t bucket = 0; bucket < _layout->buckets(); ++bucket) {
            _first_sent.push_back(sent.size());
            _first_received.push_back(received.size());
            _first_gap.push_back(_gaps.size());
            _first_kept.push_back(kept);
            if (!encodes(bucket) || _layout->bucket(bucket).type != context.type) {
                continue;
            }
            Range const extent = _layout->extent(bucket, _rank);
            if constexpr (is_frozen) {
                kept += bytes_of(extent.size());
            } else {
                std::size_t end = extent.begin;
                _layout->for_slices(bucket, extent, [&](Piece const& piece) {
                    sent.push_back({own(bucket, piece), piece.bucket_begin, piece.elements});
                    add_gap({end, piece.bucket_begin});
                    end = piece.bucket_begin + round_up(piece.elements, coded_elements);
                });
                add_gap({end, extent.end});
            }
            for (Piece const& piece : _layout->pieces(bucket)) {
                received.push_back({all(bucket, piece), piece.bucket_begin, piece.elements});
            }
        }
        _first_sent.push_back(sent.size());
        _first_received.push_back(received.size());
        _first_gap.push_back(_gaps.size());
        _sent = {_queue, *context.memory, std::move(sent)};
        _received = {_queue, *context.memory, std::move(received)};
        if (_kept.size() != 0) {
            Backend::fill(_queue, _kept.data(), _kept.size(), std::uint8_t{0});
        }
    }

    /// @brief Returns the row of the memory plan.
    [[nodiscard]] static MemoryRow row(EngineContext<Config> const& context, std::size_t type) {
        return context.row.shards_optimizer()
                   ? plan_weight_codes(*context.layout, C::bytes_per_block, type, is_frozen)
                   : MemoryRow{};
    }

    /// @brief Returns the row of the codes of frozen parameters, which replaces that of their
    /// shards.
    [[nodiscard]] static MemoryRow kept_row(EngineContext<Config> const& context,
                                            std::size_t type) {
        return is_frozen ? plan_frozen_codes(*context.layout, context.shard_rank(),
                                             C::bytes_per_block, type)
                         : MemoryRow{};
    }

    /// @brief Returns whether a bucket travels in these codes.
    [[nodiscard]] bool encodes(std::size_t bucket) const noexcept {
        return _layout->bucket(bucket).trainable != is_frozen;
    }

    /// @brief Calls `visit(Piece, codes)` with each slice of this rank's extent of a frozen bucket.
    /// @param layout the layout for which this was made
    template <class Visit>
    [[gnu::cold]] void for_kept(FlatLayout const& layout, std::size_t bucket,
                                Visit const& visit) const {
        Range const extent = layout.extent(bucket, _rank);
        layout.for_slices(bucket, extent, [&](Piece const& piece) {
            visit(piece,
                  _kept.data() + _first_kept[bucket] + bytes_of(piece.bucket_begin - extent.begin));
        });
    }

    /// @brief Encodes this rank's extent of a frozen bucket. Waits.
    /// @param values of the bucket
    [[gnu::cold]] void keep(std::size_t bucket, T* values) const {
        Range const extent = _layout->extent(bucket, _rank);
        List<CopySlice<T>> slices;
        _layout->for_slices(bucket, extent, [&](Piece const& piece) {
            slices.push_back(
                {values + piece.bucket_begin, piece.bucket_begin - extent.begin, piece.elements});
        });
        std::size_t const count = slices.size();
        Table const table(_queue, *_memory, std::move(slices));
        Backend::template encode<C>(_queue, table.range(0, count),
                                    _kept.data() + _first_kept[bucket]);
        Backend::synchronise(Backend::record(_queue)); // it reads the table
    }

    /// @brief Gathers a bucket. Collective.
    /// @param lease where pieces without an address are
    void gather(std::size_t bucket, T* lease, GatherRoute<Config> const& route,
                CollectiveTag const& tag) {
        Cuts const cuts = _layout->cuts(bucket);
        if (cuts.back() == 0) {
            return;
        }
        for (std::size_t rank = 0; rank < _cuts.size(); ++rank) {
            _cuts[rank] = bytes_of(cuts[rank]);
        }
        std::uint8_t const* own = _codes.data() + _cuts[_rank];
        if constexpr (is_frozen) {
            own = _kept.data() + _first_kept[bucket];
        } else {
            Backend::template encode<C>(route.queue, slices(_sent, _first_sent, bucket),
                                        _codes.data());
            for (std::size_t gap = _first_gap[bucket]; gap < _first_gap[bucket + 1]; ++gap) {
                Backend::fill(route.queue, _codes.data() + _gaps[gap].begin, _gaps[gap].size(),
                              std::uint8_t{0});
            }
        }
        route.ranks->all_gather(own, _codes.data(), as_span(_cuts), route.queue, tag);
        Backend::template decode<C>(route.queue, slices(_received, _first_received, bucket),
                                    static_cast<std::uint8_t const*>(_codes.data()), lease);
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _sent.size_bytes() + _received.size_bytes();
    }

private:
    using Table = typename Backend::template SliceTable<CopySlice<T>>;

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
    typename Backend::Queue _queue{};
    MemoryResource* _memory = nullptr;
    std::size_t _rank = 0;
    std::vector<std::size_t> _cuts; ///< of the bucket that is gathered, in bytes
    Buffer<std::uint8_t> _codes;    ///< of the bucket that is gathered
    Buffer<std::uint8_t> _kept;     ///< of this rank's extents of frozen buckets
    Table _sent;                    ///< slices of this rank's extents
    Table _received;                ///< all pieces
    List<Range> _gaps;              ///< bytes of this rank's extents that belong to no parameter
    std::vector<std::size_t> _first_sent; ///< by bucket: index of its first slice; then the total
    std::vector<std::size_t> _first_received;
    std::vector<std::size_t> _first_gap;
    std::vector<std::size_t> _first_kept; ///< by bucket: its first byte in `_kept`
};

} // namespace ZERO_NAMESPACE::detail
