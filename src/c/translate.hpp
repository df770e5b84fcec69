#pragma once

// Translates the structs of zero_c.h into those of the C++ headers.

#include <zero_c.h>

#include <zero/layout/memory_plan.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace zero_c {

inline std::vector<std::size_t> units_of(zero_parameter const& parameter) {
    if (parameter.units == nullptr) {
        if (parameter.unit_count != 0) {
            throw zero::InvalidArgument("zero: a parameter has a unit_count, but no 'units'.");
        }
        return {parameter.unit};
    }
    return {parameter.units, parameter.units + parameter.unit_count};
}

inline zero::AdamWOptions hyper_of(zero_group const& group, zero::AdamWOptions const&) {
    return {.beta1 = group.beta1,
            .beta2 = group.beta2,
            .epsilon = group.epsilon,
            .weight_decay = group.weight_decay};
}

inline zero::SgdOptions hyper_of(zero_group const& group, zero::SgdOptions const&) {
    return {.momentum = group.momentum,
            .weight_decay = group.weight_decay,
            .nesterov = group.nesterov != 0};
}

/// @brief Returns a group of the options. `name` is its name there. @throws InvalidArgument if it
/// has members that this library does not know
template <class Group>
Group group_of(zero_group const& from, std::string const& name) {
    for (std::uint64_t const later : from.reserved) {
        if (later != 0) {
            throw zero::InvalidArgument(
                "zero: options." + name
                + " has reserved members that are not 0; copy options.group after "
                  "zero_options_init(). If you do, the program was compiled with zero_c.h of a "
                  "later version.");
        }
    }
    Group to;
    to.optimizer = hyper_of(from, to.optimizer);
    to.learning_rate_factor = from.learning_rate_factor;
    to.is_clipped = from.is_unclipped == 0;
    return to;
}

/// @brief Returns the registrations of a model.
template <class Registration>
std::vector<Registration> registrations(std::span<zero_parameter const> parameters,
                                        zero_options const& options) {
    std::vector<Registration> list;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        zero_parameter const& from = parameters[index];
        Registration& to = list.emplace_back();
        using Value = std::remove_pointer_t<decltype(to.data.get())>;
        using Gradient = std::remove_pointer_t<decltype(to.gradient.get())>;
        to.name = from.name != nullptr ? from.name : "parameter " + std::to_string(index);
        to.elements = from.elements;
        to.units = units_of(from);
        std::size_t const groups = std::max<std::size_t>(options.group_count, 1);
        if (from.group >= groups) {
            throw zero::InvalidArgument("zero: parameter '" + std::string(to.name)
                                        + "' is in group " + std::to_string(from.group)
                                        + ", but the options have " + std::to_string(groups)
                                        + " group(s).");
        }
        to.group = from.group;
        to.trainable = from.frozen == 0;
        if (options.block != nullptr) {
            to.data = static_cast<Value*>(from.data);
        } else {
            to.initial = static_cast<Value const*>(from.data);
        }
        to.gradient = static_cast<Gradient*>(from.gradient);
    }
    return list;
}

/// @brief Returns the options of a stage. @throws InvalidArgument
template <class Options>
Options stage_options(zero_options const& from) {
    using Group = typename decltype(Options{}.groups)::value_type;
    Options to;
    if (from.clip_norm != 0.0F) {
        to.gradient_clipping = from.clip_norm;
    }
    if (from.skip_norm != 0.0F) {
        to.skip_above_norm.limit = from.skip_norm;
    }
    if (from.skip_norm_factor != 0.0F) {
        to.skip_above_norm.factor = from.skip_norm_factor;
    }
    to.skip_above_norm.window = from.skip_norm_window;
    to.report.zero_gradients = from.count_zero_gradients != 0;
    to.report.group_norms = from.group_norms != 0;
    if (from.require_gradients != 0) {
        to.unused_parameters = zero::UnusedParameters::error;
    }
    if (from.leave_unused != 0) {
        if (from.require_gradients != 0) {
            throw zero::InvalidArgument("zero: options.leave_unused conflicts with "
                                        "options.require_gradients, which refuses "
                                        "unused parameters; set one of the two.");
        }
        to.unused_parameters = zero::UnusedParameters::leave;
    }
    if (from.block == nullptr && from.block_elements != 0) {
        throw zero::InvalidArgument(
            "zero: options.block_elements is set, but options.block is null.");
    }
    if (from.block != nullptr) {
        if (from.block_elements == 0) {
            throw zero::InvalidArgument("zero: options.block needs options.block_elements.");
        }
        to.storage = zero::Storage::adopted;
        using Value = std::remove_pointer_t<decltype(to.adopted_block.data())>;
        to.adopted_block = std::span<Value>(static_cast<Value*>(from.block), from.block_elements);
    }
    if constexpr (requires { to.bucketer.bucket_bytes; }) {
        to.bucketer.bucket_bytes = from.bucket_bytes;
    }
    if constexpr (requires { to.loss_scaler.initial_scale; }) {
        to.loss_scaler.initial_scale = from.initial_loss_scale;
    }
    if (from.groups == nullptr && from.group_count != 0) {
        throw zero::InvalidArgument(
            "zero: options.group_count is set, but options.groups is null.");
    }
    if (from.groups != nullptr && from.group_count == 0) {
        throw zero::InvalidArgument("zero: options.groups is set, but options.group_count is 0.");
    }
    if (from.groups != nullptr) {
        for (std::size_t group = 0; group < from.group_count; ++group) {
            to.groups.push_back(
                group_of<Group>(from.groups[group], "groups[" + std::to_string(group) + "]"));
        }
    } else {
        auto const group = group_of<Group>(from.group, "group");
        if (group.learning_rate_factor == 1.0 && group.is_clipped) {
            to.optimizer = group.optimizer;
        } else {
            to.groups.push_back(group);
        }
    }
    switch (from.reduction) {
    case ZERO_MEAN: to.reduction.kind = zero::ReductionKind::mean; break;
    case ZERO_SUM: to.reduction.kind = zero::ReductionKind::sum; break;
    case ZERO_MEAN_OVER_RANKS: to.reduction.kind = zero::ReductionKind::mean_over_ranks; break;
    default:
        throw zero::InvalidArgument("zero: options.reduction is none of ZERO_MEAN, ZERO_SUM and "
                                    "ZERO_MEAN_OVER_RANKS.");
    }
    switch (from.schedule) {
    case ZERO_SCHEDULE_DEFAULT: break;
    case ZERO_BOUNDARY: to.reduction.schedule = zero::ReductionSchedule::boundary; break;
    case ZERO_EVERY_MICRO_STEP:
        to.reduction.schedule = zero::ReductionSchedule::every_micro_step;
        break;
    default:
        throw zero::InvalidArgument("zero: options.schedule is none of ZERO_SCHEDULE_DEFAULT, "
                                    "ZERO_BOUNDARY and ZERO_EVERY_MICRO_STEP.");
    }
    if (from.prefetch_elements != ZERO_ONE_UNIT) {
        to.gather.prefetch_elements = from.prefetch_elements;
    }
    to.gather.keep_after_forward = from.keep_units;
    to.poison = from.poison != 0;
    return to;
}

inline zero_memory memory_of(zero::MemoryPlan const& plan) {
    auto const bytes = [&](zero::BufferKind kind) -> std::uint64_t { return plan[kind].bytes(); };
    zero_memory memory{};
    memory.parameters = bytes(zero::BufferKind::parameters);
    memory.gradients = bytes(zero::BufferKind::gradients);
    memory.master_weights = bytes(zero::BufferKind::master_weights);
    memory.optimizer_state = bytes(zero::BufferKind::optimizer_state);
    memory.gradient_leases = bytes(zero::BufferKind::gradient_leases);
    memory.parameter_leases = bytes(zero::BufferKind::parameter_leases);
    memory.engine_bytes = plan.engine_bytes();
    memory.total_bytes = memory.engine_bytes;
    for (zero::BufferKind const kind :
         {zero::BufferKind::parameters, zero::BufferKind::gradients}) {
        memory.total_bytes += plan[kind].is_callers ? bytes(kind) : 0;
    }
    std::uint64_t named = 0;
    for (zero::BufferKind const kind :
         {zero::BufferKind::parameters, zero::BufferKind::gradients,
          zero::BufferKind::master_weights, zero::BufferKind::optimizer_state,
          zero::BufferKind::gradient_leases, zero::BufferKind::parameter_leases}) {
        named += plan[kind].is_callers ? 0 : bytes(kind);
    }
    memory.other = memory.engine_bytes - named;
    return memory;
}

} // namespace zero_c
