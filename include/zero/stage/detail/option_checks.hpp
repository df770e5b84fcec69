#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/error.hpp"
#include "../../layout/gather_options.hpp"
#include "../../layout/storage.hpp"
#include "../non_finite.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

/// The checks of `validate_options` that depend on no policy. Each throws InvalidArgument.
namespace ZERO_NAMESPACE::detail {

[[gnu::cold]] void check_clipping(std::optional<float> const& largest_norm);

/// @param skips_overflow whether the loss scaler skips steps with non-finite gradients
[[gnu::cold]] void check_non_finite(NonFinite non_finite, bool skips_overflow);

/// @param is_default whether `options.optimizer` has the default values
[[gnu::cold]] void check_optimizer_is_used(std::size_t groups, bool is_default);

/// @brief Rethrows the error of an optimizer's options, with the group to which they belong.
[[noreturn, gnu::cold]] void throw_for_group(InvalidArgument const& error, std::size_t group);

[[gnu::cold]] void check_learning_rate_factor(std::size_t group, double factor);

/// @brief Rejects groups that are left out of a clipping that is off, or that leaves nothing.
[[gnu::cold]] void check_clipped_groups(bool is_clipping, std::size_t groups, std::size_t clipped);

/// @brief Rejects a pre-division and a loss scale whose quotient, the factor of reduced gradients,
/// is zero or infinite as a float.
[[gnu::cold]] void check_unscaling(float predivide, float loss_scale);

/// @param rebuilds whether `rebuild_buckets` is given
/// @param has_block whether `adopted_block` is given
[[gnu::cold]] void check_storage(int stage, Storage storage, bool rebuilds,
                                 std::size_t leases_until_rebuild, bool has_block);

/// @brief Rejects a limit of persistent parameters where none is persistent in any stage.
[[gnu::cold]] void check_gather(GatherOptions const& gather);

/// @brief Lists the options that were set and that this stage does not use, each with the stages
/// that use it. The opposite of a refusal: changing the number of the stage must stay the only
/// change of a program.
[[gnu::cold]] std::vector<std::string> unused_options(int stage, std::size_t world,
                                                      GatherOptions const& gather,
                                                      std::size_t update_tile_elements);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "option_checks.ipp"
#endif
