#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/hash.hpp"
#include "../../layout/placement.hpp"
#include "../../policy/detail/hash_of_options.hpp"
#include "../stage_options.hpp"
#include "compared_option.hpp"
#include "compared_settings.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the hash of the communicator's options that must be equal on all ranks. They
/// matter only if gradients are all-reduced; otherwise, and without such options, it is 0.
template <class Communicator>
[[nodiscard]] std::uint64_t options_hash_of(Communicator const& communicator,
                                            StageRow const& row) noexcept {
    if constexpr (requires { communicator.options_hash(); }) {
        return row.shards_optimizer() ? 0 : communicator.options_hash();
    } else {
        return 0;
    }
}

/// @brief Adds the types of one `TypeSet`.
template <class Types>
void add_types(Hash& sent, Hash& masters) noexcept {
    sent.add(dtype_of<typename Types::Gradient>())
        .add(dtype_of<typename Types::Communication>())
        .add(dtype_of<typename Types::Accumulation>());
    masters.add(Types::master_form).add(dtype_of<typename Types::Master>());
}

/// @brief Hashes what must be equal on all ranks besides the layout: options, and the types that a
/// program was compiled with. Per-rank callbacks are excluded. For `require_agreement`.
/// @param initialisation `hash_of_initialisation`, when an engine is constructed
template <class Config>
[[gnu::cold]] [[nodiscard]] List<ComparedOption> compared_options(
    int number, ReductionSchedule schedule, float predivide, StageOptions<Config> const& options,
    typename Config::Communicator const& communicator, std::uint64_t initialisation = 0) {
    ComparedSettings settings;
    Hash masters;
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        (add_types<typename Config::template TypesAt<Type>>(settings.sent, masters), ...);
    }(std::make_index_sequence<Config::types>());
    masters.add(hash_of_options<typename Config::MasterWeights>(options.master_weights));
    Hash optimizer;
    optimizer.add(Config::Optimizer::states)
        .add(dtype_of<typename Config::OptimizerState::Type>())
        .add(Config::rounds_states)
        .add(hash_of_options<typename Config::Optimizer>(options.optimizer));
    Hash groups;
    for (auto const& group : options.groups) {
        groups.add(hash_of_options<typename Config::Optimizer>(group.optimizer))
            .add(group.learning_rate_factor)
            .add(group.is_clipped);
    }
    settings.stage = number;
    settings.parameters = Config::parameter_dtypes;
    settings.schedule = schedule;
    settings.kind = options.reduction.kind;
    settings.predivide = predivide;
    settings.wire_bytes = options.reduction.wire_bytes;
    settings.one_micro_step = options.reduction.one_micro_step;
    settings.storage = options.storage;
    settings.gather = options.gather;
    settings.extra_leases = options.extra_leases;
    settings.rebuilds_buckets = options.rebuild_buckets != nullptr;
    settings.leases_until_rebuild = options.leases_until_rebuild;
    settings.unused_parameters = options.unused_parameters;
    settings.non_finite = options.non_finite;
    settings.skip_limit = options.skip_limit;
    settings.report = options.report;
    settings.gradient_clipping = options.gradient_clipping.value_or(0.0F);
    settings.loss_scaler = hash_of_options<typename Config::LossScaler>(options.loss_scaler);
    settings.master_weights = masters.value();
    settings.optimizer = optimizer.value();
    settings.groups = groups.value();
    settings.communicator = options_hash_of(communicator, stage_row(number, schedule));
    settings.initialisation = initialisation;
    return settings.hashes();
}

} // namespace ZERO_NAMESPACE::detail
