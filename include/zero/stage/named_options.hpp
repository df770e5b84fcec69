#pragma once

#include "../core/hash.hpp"
#include "../core/list.hpp"
#include "../policy/options_hash.hpp"
#include "options.hpp"

#include <cstdint>

namespace zero::detail {

/// @brief A hash of what ranks have to choose alike, and what to call it.
struct NamedOption {
    char const* name;
    std::uint64_t hash;
};

/// @brief What must agree between ranks besides the geometry.
template <class Config>
[[gnu::cold]] [[nodiscard]] List<NamedOption> named_options(int number, ReductionSchedule schedule, float predivide, StageOptions<Config> const& options) {
    auto const hash_of = [](auto value) { return Hash().add(value).value(); };
    Hash groups;
    for (auto const& group : options.groups) {
        groups.add(hash_of_options<typename Config::Optimizer>(group.optimizer)).add(group.learning_rate_factor);
    }
    return {{"stage", hash_of(number)},
            {"reduction", Hash().add(schedule).add(options.reduction.kind).add(double{predivide}).value()},
            {"storage", hash_of(options.storage)},
            {"prefetch", hash_of(options.prefetch)},
            {"extra_leases", hash_of(options.extra_leases)},
            {"rebuild_buckets", Hash().add(options.rebuild_buckets != nullptr).add(options.leases_until_rebuild).value()},
            {"unused_parameters", hash_of(options.unused_parameters)},
            {"non_finite", hash_of(options.non_finite)},
            {"gradient_clipping", hash_of(double{options.gradient_clipping.value_or(0.0F)})},
            {"loss_scaler", hash_of_options<typename Config::LossScaler>(options.loss_scaler)},
            {"master_weights", hash_of_options<typename Config::MasterWeights>(options.master_weights)},
            {"optimizer", hash_of_options<typename Config::Optimizer>(options.optimizer)},
            {"groups", groups.value()}};
}

} // namespace zero::detail
