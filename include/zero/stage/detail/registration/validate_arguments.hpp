#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gather_options.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../ops/tree_sum.hpp"
#include "../../../policy/has_compared_options.hpp"
#include "../../parameter.hpp"
#include "../../stage_options.hpp"
#include "../common/engine_config.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// @file
/// @brief Checks of what a stage is constructed from: registrations, memory and options. Also what
/// follows from them: which parameters an optimizer updates as matrices, and which options this
/// stage does not use. `layout/detail/partition/validate_parameters.ipp` checks names, sizes and
/// units.

namespace ZERO_NAMESPACE::detail {

/// @brief Checks the parameter groups, and whether the composition can use an adopted block.
/// @param groups entries of `options.groups`
/// @param needs_whole whether the optimizer needs whole parameters
/// @param serves_adopted whether the partitioner serves an adopted block
/// @param types number of parameter types
/// @param is_cut whether other ranks may hold the parameters of a group: `require_used_groups`
/// @param is_rebuilt whether parameters of an engine were removed: groups may have lost theirs
/// @throws InvalidArgument naming the parameter or the group, and the remedy
[[gnu::cold]] void validate_registration(std::span<AnyParameter const> parameters,
                                         std::size_t groups, Storage storage, bool needs_whole,
                                         bool serves_adopted, std::size_t types, bool is_cut,
                                         bool is_rebuilt);

/// @brief Decides for an optimizer with a rule for matrices which parameters are matrices, and sets
/// `rows` and `update` accordingly.
/// @param groups the choice of each entry of `options.groups`
/// @throws InvalidArgument if a parameter needs a choice or cannot be what was chosen, or if there
/// is no matrix
[[gnu::cold]] void decide_updates(std::vector<ParameterSpec>& specs,
                                  std::span<std::optional<Update> const> groups,
                                  std::string const& optimizer);

/// @brief Checks that each tile begins where the whole parameter begins a block of states, so that
/// both train to the same bits. For states with a scale per block.
/// @param offsets of the parameters in an adopted block, in elements; empty: none is adopted
/// @throws InvalidArgument naming the tile
[[gnu::cold]] void require_tiles_of_blocks(std::span<AnyParameter const> parameters,
                                           std::span<std::size_t const> offsets);

} // namespace ZERO_NAMESPACE::detail

/// The checks of `validate_options` that depend on no policy. Each throws InvalidArgument.
namespace ZERO_NAMESPACE::detail {

[[gnu::cold]] void check_clipping(std::optional<float> const& largest_norm);

[[gnu::cold]] void check_norm_limit(NormLimit const& limit);

/// @param skips_overflow whether the loss scaler skips steps with non-finite gradients
[[gnu::cold]] void check_non_finite(NonFinite non_finite, bool skips_overflow);
[[gnu::cold]] void check_warm_up(std::uint64_t warm_up_steps, bool is_delayed);

/// @param is_default whether `options.optimizer` has the default values
[[gnu::cold]] void check_optimizer_is_used(std::size_t groups, bool is_default);

/// @brief Rethrows the error of an optimizer's options, with the group to which they belong.
[[noreturn, gnu::cold]] void throw_for_group(InvalidArgument const& error, std::size_t group);

[[gnu::cold]] void check_learning_rate_factor(std::size_t group, double factor);

/// @brief Rejects sums of gradients on a device's host that the device would add before they are
/// reduced.
[[gnu::cold]] void check_gradients_on_host(bool is_reduced_at_boundary);

/// @brief Rejects a chunk on a device's host that cannot hold 64 elements, and too many threads.
[[gnu::cold]] void check_update_on_host(std::size_t chunk_bytes, std::size_t threads);

/// @brief Rejects groups that are left out of a clipping that is off, or that leaves nothing.
[[gnu::cold]] void check_clipped_groups(bool is_clipping, std::size_t groups, std::size_t clipped);

/// @brief Rejects a pre-division and a loss scale whose quotient, the factor of reduced gradients,
/// is zero or infinite as a float.
[[gnu::cold]] void check_unscaling(float predivide, float loss_scale);

/// @brief Checks the options of a reduction in a tree of micro-batches. @throws InvalidArgument
[[gnu::cold]] void validate_tree(GradientReductionOptions const& reduction, std::size_t world);

/// @brief Requires that the levels of a communicator can add a tree.
/// @param ranks what `inadmissible_ranks` of the communicator says @throws InvalidArgument
[[gnu::cold]] void require_admissible_levels(ops::MicroBatchTree const& tree, std::size_t ranks);

/// @brief Requires that a reduction without a tree names no micro-batches. @throws InvalidArgument
[[gnu::cold]] void require_no_tree(GradientReductionOptions const& reduction);

/// @brief Requires that the blocks of 64 elements that `Wire` encodes belong to one parameter each.
/// Only a layout of an adopted block may have others.
/// @throws InvalidArgument naming the parameter
[[gnu::cold]] void require_whole_blocks(FlatLayout const& layout);

/// @brief Requires that every parameter begins at a multiple of 64 elements of the adopted block.
/// Otherwise the blocks whose states share a scale depend on the number of ranks.
/// @throws InvalidArgument naming the parameter
[[gnu::cold]] void require_aligned_blocks(std::span<AnyParameter const> parameters,
                                          std::span<std::size_t const> offsets);

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

/// @brief Refuses caller-owned memory that the kernels of the backend cannot use. A no-op for
/// backends without `reason_against`. @throws InvalidArgument naming the parameter
template <class Backend>
[[gnu::cold]] void require_accessible([[maybe_unused]] std::span<AnyParameter const> parameters,
                                      [[maybe_unused]] Storage storage) {
    if constexpr (requires { Backend::reason_against(nullptr); }) {
        auto const require = [](AnyParameter const& parameter, void const* memory, char const* what,
                                char const* remedy) {
            if (memory == nullptr || parameter.spec.elements == 0) {
                return;
            }
            std::string const reason = Backend::reason_against(memory);
            if (!reason.empty()) {
                throw_error<InvalidArgument>({"zero: the memory for the ", what, " of parameter '",
                                              parameter.spec.name, "' is ", reason, ", or ",
                                              remedy});
            }
        };
        for (AnyParameter const& parameter : parameters) {
            require(parameter, parameter.gradient, "gradient", "leave 'gradient' out.");
            require(parameter, storage == Storage::owned ? nullptr : parameter.data, "values",
                    "let the engine own the parameters (Storage::owned).");
        }
    }
}

/// @brief Refuses null pointers with a size, memory that would be ignored, misaligned memory, and
/// memory that overlaps that of another parameter. @throws InvalidArgument naming the parameters
/// and the remedy
[[gnu::cold]] void validate_memory(std::span<AnyParameter const> parameters, Storage storage,
                                   int stage);

/// @brief Checks the options of a stage: values out of range, and options that would be ignored.
/// @throws InvalidArgument naming the option and the remedy
template <class Config>
[[gnu::cold]] void validate_options(StageOptions<Config> const& options, int stage) {
    using Functor = typename Config::Optimizer; // not named Optimizer, because -Wshadow would warn
                                                // about zero::Optimizer
    check_clipping(options.gradient_clipping);
    check_norm_limit(options.skip_above_norm);
    Config::LossScaler::validate(options.loss_scaler);
    if constexpr (lies_on_host<Config>(BufferKind::gradients)) {
        check_gradients_on_host(options.reduction.schedule == ReductionSchedule::boundary);
    }
    if constexpr (updates_on_host<Config>) {
        check_update_on_host(options.offload.chunk_bytes, options.offload.threads);
    }
    if constexpr (requires { options.offload.warm_up_steps; }) {
        check_warm_up(options.offload.warm_up_steps, delays_update<Config>);
    }
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

#if !defined(ZERO_COMPILED)
#include "validate_arguments.ipp"
#endif
