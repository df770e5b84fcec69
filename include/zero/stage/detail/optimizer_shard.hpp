#pragma once

#include "../../backend/update_decision.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../ops/exact_sum.hpp"
#include "engine_context.hpp"
#include "gradient_scheduler.hpp"
#include "group_state.hpp"
#include "optimizer_store.hpp"
#include "parameter_scheduler.hpp"
#include "scratch_floats.hpp"
#include "visit_tuple.hpp"

#include <cstddef>
#include <limits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief What this rank updates: one `OptimizerStore` for each parameter type, addressed by
/// bucket.
template <class Config>
class OptimizerShard {
public:
    OptimizerShard(EngineContext<Config> const& context, ParameterScheduler<Config> const& store,
                   GradientScheduler<Config> const& reducer)
        : OptimizerShard(context, store, reducer, std::make_index_sequence<Config::types>()) {}

    /// @brief Master weights become the parameters as they are now.
    void copy_parameters_to_master() {
        for_each_type([](auto& memory) { memory.copy_parameters_to_master(); });
    }

    /// @brief Adds all that this rank owns.
    void inspect(ops::Inspection* result) const {
        visit_all(_memories, [&](auto const& memory) { memory.inspect(result); });
    }

    void update(std::size_t bucket, GroupState<typename Config::Optimizer> const* groups,
                UpdateDecision const* decision) const {
        visit_at(_memories, _layout->bucket(bucket).type,
                 [&](auto const& memory) { memory.update(bucket, bucket + 1, groups, decision); });
    }

    /// @brief The same for all buckets, as one operation for each parameter type.
    void update_all(GroupState<typename Config::Optimizer> const* groups,
                    UpdateDecision const* decision) const {
        visit_all(_memories, [&](auto const& memory) {
            memory.update(0, _layout->trainable_buckets(), groups, decision);
        });
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const {
        std::size_t bytes = 0;
        visit_all(_memories, [&](auto const& memory) { bytes += memory.table_bytes(); });
        return bytes;
    }

    /// @brief Calls `visit` with the memory of each parameter type.
    template <class Visitor>
    void for_each_type(Visitor&& visit) {
        visit_all(_memories, visit);
    }

private:
    template <std::size_t... Type>
    OptimizerShard(EngineContext<Config> const& context, ParameterScheduler<Config> const& store,
                   GradientScheduler<Config> const& reducer, std::index_sequence<Type...>)
        : _layout(context.layout), _scratch(*context.memory,
                                            scratch_floats<typename Config::Optimizer>(
                                                *context.layout, context.rank(), context.row),
                                            BufferKind::scratch),
          _memories(context_of<typename Config::template TypesAt<Type>>(
              context, Type, store, reducer, _scratch.data())...) {
        if (context.options->poison) {
            Config::Backend::fill(context.queue, _scratch.data(), _scratch.size(),
                                  std::numeric_limits<float>::quiet_NaN());
        }
    }

    template <class Types>
    static OptimizerContext<Config, Types>
    context_of(EngineContext<Config> const& context, std::size_t type,
               ParameterScheduler<Config> const& store, GradientScheduler<Config> const& reducer,
               float* scratch) {
        return {{context, type},
                &store.template memory<Types>(),
                &reducer.template memory<Types>(),
                scratch};
    }

    FlatLayout const* _layout;
    Buffer<float> _scratch;
    typename Config::template ForTypes<OptimizerStore> _memories;
};

} // namespace ZERO_NAMESPACE::detail
