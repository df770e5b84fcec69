#pragma once

#include "../../comm/detail/collective_call.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/hash.hpp"
#include "../../layout/placement.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../policy/detail/hash_of_options.hpp"
#include "../stage_options.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief A hash of what ranks have to choose alike, and what to call it.
struct ComparedOption {
    char const* name;
    std::uint64_t hash;
};

/// @brief What a communicator says of its options that ranks have to choose alike where gradients
/// are all-reduced; elsewhere, and when it has none, nothing.
template <class Communicator>
[[nodiscard]] std::uint64_t options_hash_of(Communicator const& communicator,
                                            StageRow const& row) noexcept {
    if constexpr (requires { communicator.options_hash(); }) {
        return row.shards_optimizer() ? 0 : communicator.options_hash();
    } else {
        return 0;
    }
}

template <class Types>
void add_types(Hash& sent, Hash& masters) noexcept {
    sent.add(dtype_of<typename Types::Gradient>())
        .add(dtype_of<typename Types::Communication>())
        .add(dtype_of<typename Types::Accumulation>());
    masters.add(Types::master_form).add(dtype_of<typename Types::Master>());
}

/// @brief What must agree between ranks besides the geometry: options, and the types that programs
/// may have been compiled with.
template <class Config>
[[gnu::cold]] [[nodiscard]] List<ComparedOption>
compared_options(int number, ReductionSchedule schedule, float predivide,
                 StageOptions<Config> const& options,
                 typename Config::Communicator const& communicator) {
    auto const hash_of = [](auto value) { return Hash().add(value).value(); };
    Hash sent;
    Hash masters;
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        (add_types<typename Config::template TypesAt<Type>>(sent, masters), ...);
    }(std::make_index_sequence<Config::types>());
    masters.add(hash_of_options<typename Config::MasterWeights>(options.master_weights));
    Hash optimizer;
    optimizer.add(Config::Optimizer::states)
        .add(dtype_of<typename Config::OptimizerState::Type>())
        .add(hash_of_options<typename Config::Optimizer>(options.optimizer));
    Hash groups;
    for (auto const& group : options.groups) {
        groups.add(hash_of_options<typename Config::Optimizer>(group.optimizer))
            .add(group.learning_rate_factor);
    }
    Hash parameters;
    for (DType const type : Config::parameter_dtypes) {
        parameters.add(type);
    }
    return {
        {"stage", hash_of(number)},
        {"parameters", parameters.value()},
        {"reduction",
         sent.add(schedule).add(options.reduction.kind).add(double{predivide}).value()},
        {"storage", hash_of(options.storage)},
        {"prefetch", hash_of(options.prefetch)},
        {"extra_leases", hash_of(options.extra_leases)},
        {"rebuild_buckets",
         Hash().add(options.rebuild_buckets != nullptr).add(options.leases_until_rebuild).value()},
        {"unused_parameters", hash_of(options.unused_parameters)},
        {"non_finite", hash_of(options.non_finite)},
        {"gradient_clipping", hash_of(double{options.gradient_clipping.value_or(0.0F)})},
        {"loss_scaler", hash_of_options<typename Config::LossScaler>(options.loss_scaler)},
        {"master_weights", masters.value()},
        {"optimizer", optimizer.value()},
        {"groups", groups.value()},
        {"communicator", options_hash_of(communicator, stage_row(number, schedule))}};
}

} // namespace ZERO_NAMESPACE::detail
