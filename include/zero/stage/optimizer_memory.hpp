#pragma once

#include "../backend/tables.hpp"
#include "drain.hpp"
#include "gradient_memory.hpp"
#include "owned_slice.hpp"
#include "parameter_memory.hpp"
#include "step_state.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace zero::detail {

/// @brief What an `OptimizerMemory` is made from: the memory that its tables point to.
template <class Config, class Types>
struct OptimizerContext : TypedContext<Config> {
    ParameterMemory<Config, Types> const* parameters;
    GradientMemory<Config, Types> const* gradients;
};

/// @brief Master weights and moments of what this rank updates of one parameter type, and the tables that inspection and update walk.
///
/// The norm always walks the own extents, in stage 0 too: every element counts once over all ranks.
template <class Config, class Types>
class OptimizerMemory {
public:
    using P = typename Types::Parameter;
    using A = typename Types::Accumulation;
    using M = typename Types::Master;
    using Optimizer = typename Config::Optimizer;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Slice = UpdateSlice<Optimizer::states, A, M, P>;

    /// @brief Where a slice of the table stands in the model.
    struct Origin {
        std::size_t parameter;
        std::size_t parameter_begin;
    };

    explicit OptimizerMemory(OptimizerContext<Config, Types> const& context)
        : _queue(context.queue), _first_slice{0}, _first_inspected{0}, _drain(context.queue) {
        FlatLayout const& layout = *context.layout;
        std::size_t const rank = context.rank();
        bool const poison = context.options->poison;
        if constexpr (Types::has_master) {
            _master = placed<M>(context, BufferKind::master_weights);
            Backend::fill(_queue, _master.data(), _master.size(), poison ? from_float<M>(std::numeric_limits<float>::quiet_NaN()) : M{});
        }
        for (auto& state : _states) {
            state = placed<float>(context, BufferKind::optimizer_state);
            Backend::fill(_queue, state.data(), state.size(), poison ? std::numeric_limits<float>::quiet_NaN() : 0.0F);
        }
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            if (layout.bucket(bucket).type == context.type) {
                Range const own = layout.extent(bucket, rank);
                layout.for_slices(bucket, context.row.shards_optimizer() ? own : Range{0, layout.elements(bucket)},
                                  [&](Piece const& piece) { add_slice(context, bucket, piece); });
                layout.for_slices(bucket, own, [&](Piece const& piece) {
                    _inspected.push_back({context.gradients->reduced(bucket, piece.bucket_begin), piece.elements,
                                          static_cast<std::int64_t>(layout.first_element(piece.parameter) + piece.parameter_begin)});
                });
            }
            _first_slice.push_back(_slices.size());
            _first_inspected.push_back(_inspected.size());
        }
    }

    /// @brief Master weights become the parameters as they are now.
    void copy_parameters_to_master() {
        if constexpr (Types::has_master) {
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

    /// @brief Slice number `index` for the caller.
    [[nodiscard]] OwnedSlice<Types, Optimizer::states> owned(std::size_t index) const {
        Slice const& slice = _slices[index];
        OwnedSlice<Types, Optimizer::states> owned{_origins[index].parameter, _origins[index].parameter_begin, {}, {}, {}};
        if constexpr (Types::has_master) {
            owned.values = {slice.parameter, slice.elements};
            owned.master = {slice.master, slice.elements};
        } else {
            owned.values = {slice.master, slice.elements};
        }
        for (std::size_t state = 0; state < Optimizer::states; ++state) {
            owned.states[state] = {slice.states[state], slice.elements};
        }
        return owned;
    }

private:
    template <class T>
    static Placed<T> placed(TypedContext<Config> const& context, BufferKind kind) {
        FlatLayout const& layout = *context.layout;
        return {layout, layout.trainable_buckets(), context.type, context.rank(), context.row.optimizer_state, *context.memory, kind};
    }

    void add_slice(OptimizerContext<Config, Types> const& context, std::size_t bucket, Piece const& piece) {
        Slice slice;
        slice.gradient = context.gradients->reduced(bucket, piece.bucket_begin);
        if constexpr (Types::has_master) {
            slice.master = _master.at(bucket, piece.bucket_begin);
            slice.parameter = context.parameters->slice(bucket, piece);
            Backend::fill(_queue, slice.master, piece.elements, M{});
        } else {
            slice.master = context.parameters->slice(bucket, piece);
        }
        for (std::size_t state = 0; state < Optimizer::states; ++state) {
            slice.states[state] = _states[state].at(bucket, piece.bucket_begin);
            Backend::fill(_queue, slice.states[state], piece.elements, 0.0F);
        }
        slice.elements = piece.elements;
        slice.group = context.layout->parameter(piece.parameter).group;
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
