#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/error.hpp"
#include "../../policy/detail/hash_of_options.hpp"
#include "../stage_options.hpp"
#include "option_checks.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Checks the options of a stage: values out of range, and options that would be ignored.
/// @throws InvalidArgument naming the option and the remedy
template <class Config>
[[gnu::cold]] void validate_options(StageOptions<Config> const& options, int stage) {
    using Functor = typename Config::Optimizer; // not named Optimizer, because -Wshadow would warn
                                                // about zero::Optimizer
    check_clipping(options.gradient_clipping);
    Config::LossScaler::validate(options.loss_scaler);
    check_non_finite(options.non_finite, Config::LossScaler::skips_overflow);
    Functor::validate(options.optimizer);
    check_optimizer_is_used(options.groups.size(), hash_of_options<Functor>(options.optimizer)
                                                       == hash_of_options<Functor>({}));
    std::size_t clipped = 0;
    for (auto const& group : options.groups) {
        clipped += group.is_clipped ? 1U : 0U;
    }
    check_clipped_groups(options.gradient_clipping.has_value(), options.groups.size(), clipped);
    for (std::size_t group = 0; group < options.groups.size(); ++group) {
        try {
            Functor::validate(options.groups[group].optimizer);
        } catch (InvalidArgument const& error) {
            throw_for_group(error, group);
        }
        check_learning_rate_factor(group, options.groups[group].learning_rate_factor);
    }
    check_gather(options.gather);
    check_storage(stage, options.storage, options.rebuild_buckets != nullptr,
                  options.leases_until_rebuild, !options.adopted_block.empty());
}

} // namespace ZERO_NAMESPACE::detail
