#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/placement.hpp"
#include "../../layout/storage.hpp"
#include "../../policy/detail/hash_of_options.hpp"
#include "../stage_options.hpp"

#include <cstddef>
#include <optional>

namespace ZERO_NAMESPACE::detail {

/// Not inlined: g++ 12 then takes the value of an empty optional for read, and warns in the
/// caller's code.
[[gnu::noinline]] inline void validate_clipping(std::optional<float> const& largest_norm) {
    if (largest_norm && (!(*largest_norm > 0.0F) || !detail::is_finite(*largest_norm))) {
        detail::throw_error<InvalidArgument>(
            {"zero: gradient_clipping is ", *largest_norm,
             "; it must be positive and finite. Leave it out to switch clipping off."});
    }
}

template <class Config>
void validate_options(StageOptions<Config> const& options, int stage) {
    validate_clipping(options.gradient_clipping);
    Config::LossScaler::validate(options.loss_scaler);
    if (Config::LossScaler::skips_overflow && options.non_finite != NonFinite::skip) {
        detail::throw_error<InvalidArgument>(
            {"zero: non_finite would be ignored, because the loss scaler skips steps whose "
             "gradients are infinite or NaN; leave it out (at_minimum of DynamicLossScaler reports "
             "overflows that go on), or use NoLossScaler."});
    }
    Config::Optimizer::validate(options.optimizer);
    if (!options.groups.empty()
        && hash_of_options<typename Config::Optimizer>(options.optimizer)
               != hash_of_options<typename Config::Optimizer>({})) {
        detail::throw_error<InvalidArgument>(
            {"zero: 'optimizer' would be ignored, because 'groups' lists the hyper-parameters of "
             "every group; give them there only."});
    }
    for (std::size_t group = 0; group < options.groups.size(); ++group) {
        try {
            Config::Optimizer::validate(options.groups[group].optimizer);
        } catch (InvalidArgument const& error) {
            detail::throw_error<InvalidArgument>(
                {error.what(), " It is an option of group ", group, '.'});
        }
        double const factor = options.groups[group].learning_rate_factor;
        if (!detail::is_non_negative_float(factor)) {
            detail::throw_error<InvalidArgument>(
                {"zero: learning_rate_factor of group ", group, " is ", factor,
                 "; it must be finite as a float and not negative."});
        }
    }
    if (options.storage != Storage::owned
        && stage_table[static_cast<std::size_t>(stage)].shards_parameters()) {
        detail::throw_error<InvalidArgument>(
            {"zero: stage 3 frees parameters between uses, which it cannot do with the caller's "
             "memory; use Storage::owned (give initial values by 'data' or 'initialise') or a "
             "stage below 3."});
    }
    if (options.rebuild_buckets != nullptr && options.storage == Storage::adopted) {
        detail::throw_error<InvalidArgument>(
            {"zero: rebuild_buckets would be ignored, because an adopted block is cut in the order "
             "of its addresses; leave it out, or use Storage::scattered."});
    }
    if (options.rebuild_buckets == nullptr && options.leases_until_rebuild != 0) {
        detail::throw_error<InvalidArgument>(
            {"zero: leases_until_rebuild would be ignored without rebuild_buckets; set that, too, "
             "or use extra_leases."});
    }
    if ((options.storage == Storage::adopted) != !options.adopted_block.empty()) {
        detail::throw_error<InvalidArgument>(
            {"zero: Storage::adopted and adopted_block go together; give both or neither."});
    }
}

} // namespace ZERO_NAMESPACE::detail
