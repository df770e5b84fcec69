#pragma once

#include "../backend/tables.hpp"
#include "drain.hpp"
#include "gradient_reducer.hpp"
#include "parameter_store.hpp"
#include "step_state.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace zero::detail {

/// @brief Master weights and moments of what this rank updates, and the tables that inspection and update walk.
///
/// The norm always walks the own extents, in stage 0 too: every element counts once over all ranks.
template <class Config>
class OptimizerShard {
public:
    using P = typename Config::Parameter;
    using A = typename Config::Accumulation;
    using M = typename Config::Master;
    using Optimizer = typename Config::Optimizer;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Slice = UpdateSlice<Optimizer::states, A, M, P>;

    /// @brief Where a slice of the table stands in the model.
    struct Origin {
        std::size_t parameter;
        std::size_t parameter_begin;
    };

    OptimizerShard(FlatLayout const& layout, std::size_t rank, Queue queue, StageRow const& row, ParameterStore<Config> const& store,
                   GradientReducer<Config> const& reducer, MemoryResource& memory, bool poison)
        : _queue(queue), _first_slice{0}, _first_inspected{0}, _drain(queue) {
        std::size_t const buckets = layout.trainable_buckets();
        if constexpr (Config::has_master) {
            _master = Placed<M>(layout, buckets, rank, row.optimizer_state, memory, BufferKind::master_weights);
            Backend::fill(_queue, _master.data(), _master.size(), poison ? from_float<M>(std::numeric_limits<float>::quiet_NaN()) : M{});
        }
        for (auto& state : _states) {
            state = Placed<float>(layout, buckets, rank, row.optimizer_state, memory, BufferKind::optimizer_state);
            Backend::fill(_queue, state.data(), state.size(), poison ? std::numeric_limits<float>::quiet_NaN() : 0.0F);
        }
        for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
            Range const own = layout.extent(bucket, rank);
            bool const is_replicated = row.optimizer_state == Placement::replicated;
            layout.for_slices(bucket, is_replicated ? Range{0, layout.elements(bucket)} : own,
                              [&](Piece const& piece) { add_slice(layout, bucket, piece, store, reducer); });
            layout.for_slices(bucket, own, [&](Piece const& piece) {
                _inspected.push_back({reducer.reduced(bucket, piece.bucket_begin), piece.elements,
                                      static_cast<std::int64_t>(layout.first_element(piece.parameter) + piece.parameter_begin)});
            });
            _first_slice.push_back(_slices.size());
            _first_inspected.push_back(_inspected.size());
        }
    }

    /// @brief Master weights become the parameters as they are now.
    void copy_parameters_to_master() {
        if constexpr (Config::has_master) {
            for (Slice const& slice : _slices) {
                Backend::convert(_queue, slice.master, slice.parameter, slice.elements, 1.0F);
            }
        }
    }

    void inspect(std::size_t bucket, ops::Inspection* result) const {
        Backend::inspect(_queue,
                         std::span(_inspected).subspan(_first_inspected[bucket], _first_inspected[bucket + 1] - _first_inspected[bucket]),
                         result);
    }

    void update(std::size_t bucket, GroupState<Optimizer> const* groups, UpdateDecision const* decision) const {
        Backend::template update<Optimizer>(
            _queue, std::span(_slices).subspan(_first_slice[bucket], _first_slice[bucket + 1] - _first_slice[bucket]), groups, decision);
    }

    [[nodiscard]] std::span<Slice const> slices() const noexcept { return _slices; }
    [[nodiscard]] Origin origin(std::size_t slice) const { return _origins[slice]; }

private:
    void add_slice(FlatLayout const& layout, std::size_t bucket, Piece const& piece, ParameterStore<Config> const& store,
                   GradientReducer<Config> const& reducer) {
        Slice slice;
        slice.gradient = reducer.reduced(bucket, piece.bucket_begin);
        if constexpr (Config::has_master) {
            slice.master = _master.at(bucket, piece.bucket_begin);
            slice.parameter = store.slice(bucket, piece);
            Backend::fill(_queue, slice.master, piece.elements, M{});
        } else {
            slice.master = store.slice(bucket, piece);
        }
        for (std::size_t state = 0; state < Optimizer::states; ++state) {
            slice.states[state] = _states[state].at(bucket, piece.bucket_begin);
            Backend::fill(_queue, slice.states[state], piece.elements, 0.0F);
        }
        slice.elements = piece.elements;
        slice.group = layout.parameter(piece.parameter).group;
        _slices.push_back(slice);
        _origins.push_back({piece.parameter, piece.parameter_begin});
    }

    Queue _queue;
    Placed<M> _master;
    std::array<Placed<float>, Optimizer::states> _states;
    std::vector<Slice> _slices;
    std::vector<Origin> _origins;
    std::vector<InspectSlice<A>> _inspected;
    std::vector<std::size_t> _first_slice;
    std::vector<std::size_t> _first_inspected;
    Drain<Backend> _drain;
};

} // namespace zero::detail
