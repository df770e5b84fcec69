#pragma once

#include "../../../backend/update_decision.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/placement.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../common/stores_by_type.hpp"
#include "../gradients/gradient_scheduler.hpp"
#include "../parameters/parameter_scheduler.hpp"
#include "optimizer_store.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the floats of scratch memory that the updates of this rank need: the maximum over
/// its parameters, because an optimizer of whole parameters updates them one by one. 0 for other
/// optimizers.
template <class Optimizer>
[[gnu::cold]] std::size_t scratch_floats([[maybe_unused]] FlatLayout const& layout,
                                         [[maybe_unused]] std::size_t rank,
                                         [[maybe_unused]] StageRow const& row) {
    std::size_t most = 0;
    if constexpr (Optimizer::whole_tensor) {
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            layout.for_slices(
                bucket, updated_range(layout, bucket, rank, row), [&](Piece const& piece) {
                    auto const& spec = layout.parameter(piece.parameter);
                    most = larger(most, Optimizer::scratch_floats(
                                            spec.rows, spec.rows == 0 ? spec.elements
                                                                      : spec.elements / spec.rows));
                });
        }
    }
    return most;
}

/// @brief The shard of master weights and optimizer states that this rank updates: one
/// OptimizerStore per parameter type, and the scratch memory they share.
///
/// The engine calls `inspect` for the norm, then `update`.
template <class Config>
class OptimizerShard {
public:
    [[gnu::cold]] OptimizerShard(EngineContext<Config> const& context,
                                 ParameterScheduler<Config> const& parameters,
                                 GradientScheduler<Config> const& gradients)
        : _scratch(*context.memory,
                   scratch_floats<typename Config::Optimizer>(*context.layout, context.rank(),
                                                              context.row),
                   BufferKind::scratch),
          _stores(*context.layout, [&]<class Types>(std::size_t type) {
              return OptimizerContext<Config, Types>{{context, type},
                                                     &parameters.template store<Types>(),
                                                     &gradients.template store<Types>(),
                                                     _scratch.data()};
          }) {
        if (context.options->poison) {
            Config::Backend::fill(context.queue, _scratch.data(), _scratch.size(),
                                  std::numeric_limits<float>::quiet_NaN());
        }
    }

    /// @brief Sets the master weights to the current parameters.
    void copy_parameters_to_master() {
        _stores.each([](auto& store) { store.copy_parameters_to_master(); });
    }

    /// @brief Adds the reduced gradients that this rank owns to an inspection.
    void inspect(ops::Inspection* result) const {
        _stores.each([&](auto const& store) { store.inspect(result); });
    }

    /// @brief Adds the same gradients to the norms of their groups.
    void add_to_group_norms(ops::NormSum* norms) const {
        _stores.each([&](auto const& store) { store.add_to_group_norms(norms); });
    }

    /// @brief Adds the number of zeros among the same gradients.
    void count_zeros(std::int64_t* count) const {
        _stores.each([&](auto const& store) { store.count_zeros(count); });
    }

    /// @brief Updates the slices of one bucket.
    /// @param groups the rows that slices name, as `StepControl::rows`
    void update(std::size_t bucket, GroupState<typename Config::Optimizer> const* groups,
                UpdateDecision const* decision) const {
        _stores.of_bucket(
            bucket, [&](auto const& store) { store.update(bucket, bucket + 1, groups, decision); });
    }

    /// @brief Updates all buckets, by one command per parameter type and tile
    /// (`update_tile_elements`).
    void update_all(GroupState<typename Config::Optimizer> const* groups,
                    UpdateDecision const* decision) const {
        _stores.each([&](auto const& store) { store.update_all(groups, decision); });
    }

    /// @brief Makes the slices name parameters instead of groups.
    [[gnu::cold]] void count_by_parameter(MemoryResource& memory) {
        _stores.each([&](auto& store) { store.count_by_parameter(memory); });
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const { return _stores.table_bytes(); }

    /// @brief Calls `visit` with the store of each parameter type.
    template <class Visitor>
    void for_each_store(Visitor&& visit) {
        _stores.each(visit);
    }

private:
    Buffer<float> _scratch;
    StoresByType<Config, OptimizerStore> _stores;
};

} // namespace ZERO_NAMESPACE::detail
