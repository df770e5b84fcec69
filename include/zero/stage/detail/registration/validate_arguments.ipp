#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/detail/partition/order_by.hpp"
#include "../../../layout/detail/partition/shape.hpp"
#include "../../../layout/detail/plan/count_blocks.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../ops/tree_sum.hpp"
#include "validate_arguments.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void validate_registration(std::span<AnyParameter const> parameters,
                                            std::size_t groups, Storage storage, bool needs_whole,
                                            bool serves_adopted, std::size_t types, bool is_cut,
                                            bool is_rebuilt) {
    if (needs_whole && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: an adopted block is cut inside parameters, but the optimizer needs whole ones; "
             "use Storage::scattered or Storage::owned."});
    }
    if (!serves_adopted && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: an adopted block is cut bucket by bucket where it lies, and another "
             "partitioner would be ignored; use ContiguousPartitioner or Storage::scattered."});
    }
    std::vector<bool> is_used(groups, is_cut || is_rebuilt || parameters.empty());
    for (auto const& parameter : parameters) {
        if (parameter.spec.update == Update::elements && parameter.spec.rows != 0) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' has ", parameter.spec.rows,
                 " rows, which Update::elements would ignore; leave 'rows' or 'update' out."});
        }
        if (needs_whole && !parameter.spec.tile.of.empty()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.tile.of,
                 "' is registered in tiles, but the optimizer needs whole parameters; register it "
                 "without tiles()."});
        }
        // the largest index decides how many groups are made
        if (groups == 0 && !is_rebuilt && parameter.spec.group >= parameters.size()) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is in group ", parameter.spec.group,
                 ", but there are ", parameters.size(),
                 " parameters, so at most as many groups; number groups from 0."});
        }
        if (groups != 0 && parameter.spec.group >= groups) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' is in group ", parameter.spec.group,
                 ", but options.groups has ", groups, " entries; list every group, or none."});
        }
        if (groups != 0) {
            is_used[parameter.spec.group] = true;
        }
    }
    for (std::size_t group = 0; group < groups; ++group) {
        if (!is_used[group]) {
            throw_error<InvalidArgument>({"zero: options.groups has ", groups,
                                          " entries, but no parameter is in group ", group,
                                          ", so its options would be ignored; set the group of a "
                                          "parameter, or leave the entry out."});
        }
    }
    if (types > 1 && storage == Storage::adopted) {
        throw_error<InvalidArgument>({"zero: an adopted block holds one parameter type, but the "
                                      "model has several; use Storage::scattered."});
    }
}

ZERO_COLD_INLINE void decide_updates(std::vector<ParameterSpec>& specs,
                                     std::span<std::optional<Update> const> groups,
                                     std::string const& optimizer) {
    std::size_t trained = 0;
    std::size_t matrices = 0;
    for (ParameterSpec& spec : specs) {
        if (!spec.trainable || spec.elements == 0) {
            continue;
        }
        ++trained;
        if (!spec.update && spec.group < groups.size()) {
            spec.update = groups[spec.group];
        }
        if (!spec.update && spec.shape.size() == 2) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' has the shape ", shape_text(spec.shape),
                 ", and ", optimizer,
                 " does not guess whether that is a matrix to orthogonalise; set 'update' of the "
                 "parameter or its group to zero::Update::matrix, or to zero::Update::elements for "
                 "embeddings and output heads."});
        }
        if (spec.update == Update::matrix) {
            if (spec.rows == 0 && spec.shape.size() < 2) {
                throw_error<InvalidArgument>(
                    {"zero: parameter '", spec.name, "' is chosen as a matrix, but has ",
                     spec.shape.empty() ? std::string("neither rows nor a shape")
                                        : "the shape " + shape_text(spec.shape) + " and no rows",
                     "; give 'rows', or choose zero::Update::elements."});
            }
            spec.rows = spec.rows == 0 ? spec.shape.front() : spec.rows;
            ++matrices;
        } else {
            spec.update = Update::elements;
            spec.rows = 0;
        }
    }
    if (trained != 0 && matrices == 0) {
        throw_error<InvalidArgument>(
            {"zero: none of the ", trained, " trainable parameters is a matrix, so ", optimizer,
             " would orthogonalise nothing; set 'update' of those that are to "
             "zero::Update::matrix, or use AdamW."});
    }
}

ZERO_COLD_INLINE void require_tiles_of_blocks(std::span<AnyParameter const> parameters,
                                              std::span<std::size_t const> offsets) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        ParameterSpec const& spec = parameters[index].spec;
        if (!spec.trainable || !spec.tile.is_later()) {
            continue;
        }
        if (spec.tile.begin % block_elements != 0) {
            throw_error<InvalidArgument>(
                {"zero: tile '", spec.name, "' begins inside a block of ", block_elements,
                 " elements of '", spec.tile.of,
                 "' whose states share a scale, so it would not train to the bits of the whole "
                 "parameter; choose a number of tiles that begin at multiples of ",
                 block_elements, ", or use OptimizerState<bfloat16>."});
        }
        if (!offsets.empty() && offsets[index] % block_elements != 0) {
            throw_error<InvalidArgument>(
                {"zero: tile '", spec.name, "' begins at element ", offsets[index],
                 " of the adopted block, which is no multiple of the ", block_elements,
                 " elements whose states share a scale, so it would not train to the bits of the "
                 "whole parameter; use Storage::scattered, or OptimizerState<bfloat16>."});
        }
    }
}

// Not inlined: otherwise g++ 12 warns in the caller's code that an empty optional is read.
[[gnu::noinline]] ZERO_COLD_INLINE void check_clipping(std::optional<float> const& largest_norm) {
    if (largest_norm && (!(*largest_norm > 0.0F) || !is_finite(*largest_norm))) {
        throw_error<InvalidArgument>(
            {"zero: gradient_clipping is ", *largest_norm,
             "; it must be positive and finite. Leave it out to switch clipping off."});
    }
}

[[gnu::noinline]] ZERO_COLD_INLINE void check_norm_limit(NormLimit const& limit) {
    auto const is_between = [](float value, float least) { // false for NaN
        return value > least && is_finite(value);
    };
    if (limit.limit && !is_between(*limit.limit, 0.0F)) {
        throw_error<InvalidArgument>(
            {"zero: skip_above_norm.limit is ", *limit.limit,
             "; it must be positive and finite. Leave it out to skip no step for its norm."});
    }
    if (limit.factor && !is_between(*limit.factor, 1.0F)) {
        throw_error<InvalidArgument>(
            {"zero: skip_above_norm.factor is ", *limit.factor,
             "; it multiplies the running norm and must be finite and above 1, because otherwise "
             "usual steps would be skipped. For an absolute norm set skip_above_norm.limit."});
    }
    if (limit.window == 0) {
        throw_error<InvalidArgument>(
            {"zero: skip_above_norm.window is 0, but the running norm needs at least one step; "
             "leave it out for ",
             NormLimit{}.window, '.'});
    }
    if (!limit.factor && limit.window != NormLimit{}.window) {
        throw_error<InvalidArgument>(
            {"zero: skip_above_norm.window is ", limit.window,
             ", which would be ignored without skip_above_norm.factor; set both, or leave it "
             "out."});
    }
}

ZERO_COLD_INLINE void check_non_finite(NonFinite non_finite, bool skips_overflow) {
    if (skips_overflow && non_finite != NonFinite::skip) {
        throw_error<InvalidArgument>(
            {"zero: non_finite would be ignored, because the loss scaler skips steps whose "
             "gradients are infinite or NaN; leave it out (at_minimum of DynamicLossScaler reports "
             "persistent overflows), or use NoLossScaler."});
    }
}

ZERO_COLD_INLINE void check_warm_up(std::uint64_t warm_up_steps, bool is_delayed) {
    if (warm_up_steps != 0 && !is_delayed) {
        throw_error<InvalidArgument>(
            {"zero: offload.warm_up_steps would be ignored, because no update is delayed; leave it "
             "out, or write zero::Offload<zero::To<...>, zero::DelayedUpdate>."});
    }
}

ZERO_COLD_INLINE void check_optimizer_is_used(std::size_t groups, bool is_default) {
    if (groups != 0 && !is_default) {
        throw_error<InvalidArgument>(
            {"zero: 'optimizer' would be ignored, because 'groups' lists the hyper-parameters of "
             "every group; give them there only."});
    }
}

ZERO_COLD_INLINE void throw_for_group(InvalidArgument const& error, std::size_t group) {
    throw_error<InvalidArgument>({error.what(), " It is an option of group ", group, '.'});
}

ZERO_COLD_INLINE void check_learning_rate_factor(std::size_t group, double factor) {
    if (!is_non_negative_float(factor)) {
        throw_error<InvalidArgument>({"zero: learning_rate_factor of group ", group, " is ", factor,
                                      "; it must be finite as a float and not negative."});
    }
}

ZERO_COLD_INLINE void check_gradients_on_host(bool is_reduced_at_boundary) {
    if (is_reduced_at_boundary) {
        throw_error<InvalidArgument>(
            {"zero: reduction.schedule is boundary, which adds all gradients on the device before "
             "they are reduced; leave it out, or BufferKind::gradients out of Offload."});
    }
}

ZERO_COLD_INLINE void check_update_on_host(std::size_t chunk_bytes, std::size_t threads) {
    constexpr std::size_t least = std::size_t{64} * 2 * sizeof(float);
    if (chunk_bytes < least) {
        throw_error<InvalidArgument>(
            {"zero: offload.chunk_bytes is ", chunk_bytes,
             " bytes, but a chunk must hold gradients and parameters of 64 elements, ", least,
             " bytes; set it to at least that."});
    }
    constexpr std::size_t most = 1024;
    if (threads > most) {
        throw_error<InvalidArgument>({"zero: offload.threads is ", threads, "; at most ", most,
                                      " threads of a rank update; name its share of the cores, or "
                                      "leave it at 0."});
    }
}

ZERO_COLD_INLINE void check_clipped_groups(bool is_clipping, std::size_t groups,
                                           std::size_t clipped) {
    if (clipped == groups) {
        return;
    }
    if (!is_clipping) {
        throw_error<InvalidArgument>(
            {"zero: is_clipped = false in ", groups - clipped, " of ", groups,
             " parameter groups would be ignored, because gradient_clipping is off; leave it out, "
             "or set gradient_clipping."});
    }
    if (clipped == 0) {
        throw_error<InvalidArgument>(
            {"zero: gradient_clipping would clip nothing, because is_clipped = false in every "
             "parameter group; leave gradient_clipping out, or clip a group."});
    }
}

/// @brief Lists the numbers of ranks that can add a tree, and divide `whole`.
ZERO_COLD_INLINE std::string admissible_ranks(ops::MicroBatchTree const& tree, std::size_t whole) {
    std::string possible;
    auto const add = [&](std::size_t ranks) {
        if (tree.inside(ranks).is_admissible() && whole % ranks == 0) {
            possible += text({possible.empty() ? "" : ", ", ranks});
        }
    };
    for (std::size_t ranks = 1; ranks < tree.group; ranks *= 2) {
        add(ranks);
    }
    for (std::size_t ranks = tree.group; ranks != 0;
         ranks = ranks > tree.micro_batches / 2 ? 0 : 2 * ranks) {
        add(ranks);
    }
    return possible;
}

ZERO_COLD_INLINE void require_admissible_levels(ops::MicroBatchTree const& tree,
                                                std::size_t ranks) {
    if (ranks != 0 && tree.is_admissible()) {
        throw_error<InvalidArgument>({"zero: the inner level of Hierarchical has ", ranks, " of ",
                                      tree.world, " ranks, whose sum is no part of the tree of ",
                                      tree.micro_batches, " micro-batches in groups of ",
                                      tree.group, "; possible numbers of inner ranks are ",
                                      admissible_ranks(tree, tree.world),
                                      ". Use one of these, or change reduction.micro_batches or "
                                      "reduction.micro_batch_group, which changes bits."});
    }
}

ZERO_COLD_INLINE void validate_tree(GradientReductionOptions const& reduction, std::size_t world) {
    std::size_t const all = reduction.micro_batches;
    std::size_t const group = reduction.micro_batch_group;
    if (all == 0) {
        throw_error<InvalidArgument>(
            {"zero: reduction.micro_batches is 0; TreeReduction needs the number of micro-batches "
             "of a step over all ranks, the same for every number of ranks."});
    }
    ops::MicroBatchTree const tree{all, group, world};
    if (!tree.is_valid()) {
        throw_error<InvalidArgument>(
            {"zero: reduction.micro_batch_group is ", group, ", which does not divide the ", all,
             " micro-batches of a step; leave it at 1, or name a divisor."});
    }
    if (!tree.is_admissible()) {
        throw_error<InvalidArgument>(
            {"zero: ", world, " ranks cannot add the tree of ", all, " micro-batches in groups of ",
             group, "; possible numbers of ranks are ", admissible_ranks(tree, all),
             ". Use one of these, or change reduction.micro_batches or "
             "reduction.micro_batch_group, which changes bits."});
    }
    if (reduction.schedule == ReductionSchedule::boundary) {
        throw_error<InvalidArgument>(
            {"zero: reduction.schedule is boundary, which adds micro-steps on each rank first, and "
             "TreeReduction adds them in another order; leave the schedule out."});
    }
    if (reduction.predivide && *reduction.predivide != 1.0F) {
        throw_error<InvalidArgument>(
            {"zero: reduction.predivide is ", *reduction.predivide,
             ", and TreeReduction sends gradients as they are, because its sums are floats; leave "
             "it out."});
    }
    if (reduction.kind == ReductionKind::mean_over_ranks) {
        throw_error<InvalidArgument>(
            {"zero: reduction.kind is mean_over_ranks, which depends on the number of ranks, and "
             "TreeReduction must not; use mean, which divides by the ",
             all, " micro-batches."});
    }
    if (reduction.one_micro_step && all != world) {
        throw_error<InvalidArgument>({"zero: reduction.one_micro_step is set, but ", all,
                                      " micro-batches are ", all / world, " micro-steps on ", world,
                                      " ranks; leave it out."});
    }
}

ZERO_COLD_INLINE void require_no_tree(GradientReductionOptions const& reduction) {
    if (reduction.micro_batches != 0 || reduction.micro_batch_group != 1) {
        throw_error<InvalidArgument>(
            {"zero: reduction.micro_batches and micro_batch_group are for TreeReduction, and this "
             "stage adds in rank order; write ZeroStage<N, TreeReduction<>, ...>, or leave them "
             "out."});
    }
}

ZERO_COLD_INLINE void require_aligned_blocks(std::span<AnyParameter const> parameters,
                                             std::span<std::size_t const> offsets) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        ParameterSpec const& spec = parameters[index].spec;
        if (spec.trainable && spec.elements != 0 && offsets[index] % block_elements != 0) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' begins at element ", offsets[index],
                 " of the adopted block, which is no multiple of the ", block_elements,
                 " elements whose states share a scale, so the bits of TreeReduction, or of "
                 "replicas in other parts of a model, would depend on the ranks; use "
                 "Storage::scattered, or OptimizerState<bfloat16>."});
        }
    }
}

ZERO_COLD_INLINE void require_whole_blocks(FlatLayout const& layout) {
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            if (piece.bucket_begin % block_elements != 0
                || piece.parameter_begin % block_elements != 0) {
                throw_error<InvalidArgument>(
                    {"zero: parameter '", layout.parameter(piece.parameter).name,
                     "' does not begin at a multiple of ", block_elements,
                     " elements of the adopted block, so its codes would hold elements of other "
                     "parameters; align it there, use Storage::scattered, or leave zero::Wire "
                     "out."});
            }
        }
    }
}

ZERO_COLD_INLINE void check_unscaling(float predivide, float loss_scale) {
    double const factor = static_cast<double>(predivide) / static_cast<double>(loss_scale);
    if (!(factor >= 0x1p-149 && factor <= 0x1.fffffep127)) {
        throw_error<InvalidArgument>(
            {"zero: reduced gradients are multiplied by predivide / loss scale, which is ", factor,
             " for predivide ", predivide, " and loss scale ", loss_scale,
             " and lies outside the range of float; give values that are nearer to 1."});
    }
}

ZERO_COLD_INLINE void check_storage(int stage, Storage storage, bool rebuilds,
                                    std::size_t leases_until_rebuild, bool has_block) {
    if (storage != Storage::owned
        && stage_table[static_cast<std::size_t>(stage)].shards_parameters()) {
        throw_error<InvalidArgument>(
            {"zero: stage 3 frees parameters between uses, which it cannot do with the caller's "
             "memory; use Storage::owned (give initial values by 'initial' or 'initialise') or a "
             "stage below 3."});
    }
    if (rebuilds && storage == Storage::adopted) {
        throw_error<InvalidArgument>(
            {"zero: rebuild_buckets would be ignored, because an adopted block is cut in the order "
             "of its addresses; leave it out, or use Storage::scattered."});
    }
    if (!rebuilds && leases_until_rebuild != 0) {
        throw_error<InvalidArgument>(
            {"zero: leases_until_rebuild would be ignored without rebuild_buckets; set both, or "
             "use extra_leases."});
    }
    if ((storage == Storage::adopted) != has_block) {
        throw_error<InvalidArgument>(
            {"zero: Storage::adopted and adopted_block go together; give both or neither."});
    }
}

ZERO_COLD_INLINE void check_gather(GatherOptions const& gather) {
    if (gather.persistence_threshold == 0 && gather.max_persistent_elements != GatherOptions::all) {
        throw_error<InvalidArgument>(
            {"zero: gather.max_persistent_elements is ", gather.max_persistent_elements,
             ", which no stage would use without gather.persistence_threshold, because then no "
             "parameter is persistent; set both, or leave it out."});
    }
}

ZERO_COLD_INLINE std::vector<std::string> unused_options(int stage, std::size_t world,
                                                         GatherOptions const& gather,
                                                         std::size_t update_tile_elements) {
    std::vector<std::string> unused;
    StageRow const& row = stage_table[static_cast<std::size_t>(stage)];
    if (!row.shards_parameters()) {
        GatherOptions const standard;
        auto const add = [&](bool is_set, char const* name) {
            if (is_set) {
                unused.push_back(std::string("gather.") + name + " (stage 3 uses it)");
            }
        };
        add(gather.prefetch_elements.has_value(), "prefetch_elements");
        add(gather.persistence_threshold != standard.persistence_threshold,
            "persistence_threshold");
        add(gather.max_persistent_elements != standard.max_persistent_elements,
            "max_persistent_elements");
        add(gather.max_reuse_distance.has_value(), "max_reuse_distance");
        add(gather.keep_after_forward != standard.keep_after_forward, "keep_after_forward");
        add(gather.keep_until_update != standard.keep_until_update, "keep_until_update");
        add(gather.max_live_elements != standard.max_live_elements, "max_live_elements");
        add(gather.changed_order != standard.changed_order, "changed_order");
    }
    bool const updates_by_bucket = row.shards_optimizer() && !row.shards_parameters() && world > 1;
    if (updates_by_bucket && update_tile_elements != 0) {
        unused.emplace_back(
            "update_tile_elements (stages 0 and 3 use it, and a single rank in every stage)");
    }
    return unused;
}

/// @brief Memory that belongs to one parameter, for the search for overlaps.
struct Claim {
    std::byte const* begin;
    std::size_t elements;
    DType type;
    std::string const* name;

    [[nodiscard]] std::byte const* end() const { return begin + elements * size_of(type); }

    /// Describes the range: "'a' has [0x1000, 0x1014), 5 elements of float32".
    [[nodiscard]] std::string range() const {
        return text({'\'', *name, "' has [", hexadecimal(begin), ", ", hexadecimal(end()), "), ",
                     elements, " elements of ", name_of(type)});
    }
};

inline Claim claim(void const* memory, std::size_t elements, DType type, std::string const& name) {
    return {static_cast<std::byte const*>(memory), elements, type, &name};
}

/// @throws InvalidArgument naming two parameters whose memory overlaps, and both ranges
/// @param relation the memory that the two parameters share, for the message
/// @param may_coincide whether two parameters may begin at the same address, because their memory
/// is only read; other overlaps are mistakes then as well
inline void refuse_overlaps(List<Claim> const& claims, char const* relation, char const* remedy,
                            bool may_coincide = false) {
    std::vector<std::uint64_t> begins;
    for (Claim const& claim : claims) {
        begins.push_back(reinterpret_cast<std::uintptr_t>(claim.begin));
    }
    std::vector<std::size_t> const order = order_by(begins);
    for (std::size_t index = 1; index < order.size(); ++index) {
        Claim const& before = claims[order[index - 1]];
        Claim const& after = claims[order[index]];
        if (after.begin < before.end() && !(may_coincide && after.begin == before.begin)) {
            throw_error<InvalidArgument>(
                {"zero: parameters '", *before.name, "' and '", *after.name, "' share ", relation,
                 ": ", before.range(), "; ", after.range(), ". ", remedy,
                 " Where the ranges should not meet, one has a wrong type or size."});
        }
    }
}

/// @throws InvalidArgument
inline void refuse_misaligned(void const* memory, std::size_t bytes, std::string const& name) {
    if (reinterpret_cast<std::uintptr_t>(memory) % bytes != 0) {
        throw_error<InvalidArgument>({"zero: the memory of parameter '", name,
                                      "' does not begin at a multiple of its elements' ", bytes,
                                      " bytes; align it."});
    }
}

/// Refuses values that would be read from nowhere, or memory that would be ignored.
/// @throws InvalidArgument
inline void refuse_ignored(AnyParameter const& parameter, Storage storage, int stage) {
    std::string const& name = parameter.spec.name;
    bool const is_owned = storage == Storage::owned;
    if (!is_owned && parameter.data == nullptr) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name, "' has ", parameter.spec.elements,
             " elements but its pointer 'data' is null; only owned parameters may leave it out."});
    }
    if (is_owned && parameter.data != nullptr) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name, "' has memory in 'data', which would never change: ",
             (stage < 3 ? "with Storage::owned the engine trains a copy. Give initial values as "
                          "'initial', or set .storage to zero::Storage::scattered or adopted to "
                          "train 'data' itself."
                        : "stage 3 keeps shards, and the model reads parameters through acquire(). "
                          "Give initial values as 'initial'.")});
    }
    if (!is_owned && (parameter.initialise || parameter.initial != nullptr)) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name, "' has ",
             (parameter.initialise ? "an initialiser" : "initial values"),
             ", which would be ignored, because the parameter lies in the caller's memory; fill "
             "that memory instead."});
    }
    if (parameter.initial != nullptr && parameter.initialise) {
        throw_error<InvalidArgument>({"zero: parameter '", name,
                                      "' has initial values, which would be ignored, "
                                      "and an initialiser; give one of the two."});
    }
    if (parameter.is_deterministic && parameter.initial != nullptr) {
        throw_error<InvalidArgument>({"zero: parameter '", name,
                                      "' is deterministic, so each owner fills its own part, but "
                                      "has values in 'initial', which only rank 0 reads; give "
                                      "'initialise', or leave 'is_deterministic' out."});
    }
    if (parameter.is_deterministic && !is_owned) {
        throw_error<InvalidArgument>(
            {"zero: parameter '", name,
             "' is deterministic, which would be ignored, because it lies in the caller's memory "
             "and has no initialiser; leave 'is_deterministic' out."});
    }
    if (parameter.gradient != nullptr && !parameter.spec.trainable) {
        throw_error<InvalidArgument>(
            {"zero: frozen parameter '", name,
             "' has memory for its gradient, which would be ignored; leave 'gradient' out, or "
             "register it as trainable."});
    }
}

ZERO_COLD_INLINE void validate_memory(std::span<AnyParameter const> parameters, Storage storage,
                                      int stage) {
    List<Claim> values;
    List<Claim> gradients;
    bool const is_owned = storage == Storage::owned;
    for (auto const& parameter : parameters) {
        ParameterSpec const& spec = parameter.spec;
        if (spec.elements == 0) {
            continue;
        }
        refuse_ignored(parameter, storage, stage);
        void const* const value = storage == Storage::owned ? parameter.initial : parameter.data;
        refuse_misaligned(value, size_of(parameter.type), spec.name);
        refuse_misaligned(parameter.gradient, size_of(parameter.gradient_type), spec.name);
        if (value != nullptr) {
            values.push_back(claim(value, spec.elements, parameter.type, spec.name));
        }
        if (parameter.gradient != nullptr && !is_owned && parameter.gradient == value) {
            throw_error<InvalidArgument>({"zero: the values and the gradient of '", spec.name,
                                          "' are the same memory, at ", hexadecimal(value),
                                          "; give the gradient memory of its own."});
        }
        if (parameter.gradient != nullptr) {
            gradients.push_back(
                claim(parameter.gradient, spec.elements, parameter.gradient_type, spec.name));
        }
    }
    constexpr char const* register_once = "Register a tied parameter once and list all its units.";
    refuse_overlaps(values, is_owned ? "the memory of initial values" : "parameter memory",
                    register_once, is_owned);
    refuse_overlaps(gradients, "gradient memory", register_once);
    if (!is_owned) { // otherwise values are read during construction only
        for (Claim const& gradient : gradients) {
            values.push_back(gradient);
        }
        refuse_overlaps(values, "memory, one for its values and one for its gradient",
                        "Give each its own.");
    }
}

} // namespace ZERO_NAMESPACE::detail
