#pragma once

// What a trainer tells the engine of a configuration: the options of a stage.

#include "configuration.hpp"
#include "numbers.hpp"

#include <zero/ops/adamw.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <vector>

namespace zero::test::oracle {

inline void set(AdamWOptions& options, Hyper const& hyper) {
    options = {.beta1 = hyper.beta1,
               .beta2 = hyper.beta2,
               .epsilon = hyper.epsilon,
               .weight_decay = hyper.weight_decay};
}

inline void set(SgdOptions& options, Hyper const& hyper) {
    options = {
        .momentum = hyper.momentum, .weight_decay = hyper.weight_decay, .nesterov = hyper.nesterov};
}

template <class Communicator>
GatherOptions gathering(Configuration const& c) {
    GatherOptions gather;
    gather.prefetch_elements = c.prefetch_elements;
    if (!c.prefetches) {
        gather.prefetch_elements = 0;
    }
    gather.persistence_threshold = c.persistence_threshold;
    gather.max_persistent_elements = c.max_persistent_elements;
    gather.max_reuse_distance = c.max_reuse_distance;
    gather.keep_after_forward = c.kept_units > c.units ? GatherOptions::all : c.kept_units;
    gather.keep_until_update = c.keep_until_update;
    gather.own_communicator =
        c.gathers_apart && SplittableCommunicator<zero::detail::ShardOf<Communicator>>;
    if (c.limits_live) { // room for any unit, with the most padding of any partitioner
        std::size_t persistent = 0;
        std::vector<std::size_t> units(c.units, 0);
        for (Shape const& shape : c.shapes) {
            std::size_t const padded = shape.elements + 64 * (c.world + 1);
            bool const stays =
                shape.elements <= c.persistence_threshold || c.keep_until_update != 0;
            persistent += stays ? padded : 0;
            persistent += shape.units.size() > 1 ? padded : 0;
            for (std::size_t const unit : shape.units) {
                units[unit] += padded;
            }
        }
        gather.max_live_elements = *std::max_element(units.begin(), units.end()) + persistent;
    }
    return gather;
}

/// Returns the options of a stage, without those that every rank has of its own: queues and memory.
template <class Engine>
typename Engine::Options options_of(Configuration const& c) {
    typename Engine::Options o;
    o.gradient_clipping = c.clip;
    o.skip_above_norm.limit = c.norm_limit;
    o.skip_above_norm.factor = c.norm_factor;
    o.skip_above_norm.window = c.norm_factor ? c.norm_window : NormLimit{}.window;
    if (c.types().scaler == Scaler::none) {
        o.non_finite = c.on_non_finite == OnNonFinite::skip ? NonFinite::skip : NonFinite::step;
    }
    o.report = ReportOptions{.zero_gradients = c.reports_zeros, .group_norms = c.reports_groups};
    o.storage = c.memory == Memory::owned     ? Storage::owned
                : c.memory == Memory::adopted ? Storage::adopted
                                              : Storage::scattered;
    o.asynchronous = true; // a wait would hide a missing fence
    o.extra_leases = c.extra_leases;
    o.rebuild_buckets = c.rebuilds ? Engine::in_ready_order : nullptr;
    o.leases_until_rebuild = c.leases_until_rebuild;
    o.gather = gathering<typename Engine::Communicator>(c);
    o.update_tile_elements = c.update_tile_elements;
    o.poison = c.is_poisoned;
    if constexpr (requires { o.offload.path; }) {
        o.offload.path = std::filesystem::temp_directory_path();
        o.offload.chunk_bytes = 4096 * (1 + c.cap_elements % 5);
        o.offload.depth = 1 + c.cap_elements % 4;
        o.offload.allow_page_cache = true;
    }
    if constexpr (requires { o.bucketer.bucket_bytes; }) {
        o.bucketer.bucket_bytes = c.cap_elements * sizeof(typename Engine::ParameterType);
    }
    if constexpr (requires { o.bucketer.largest_bytes; }) {
        o.bucketer.smallest_bytes =
            (c.cap_elements * sizeof(typename Engine::ParameterType) + 1) / 2;
        o.bucketer.largest_bytes = c.cap_elements * sizeof(typename Engine::ParameterType);
    }
    if constexpr (requires { o.loss_scaler.scale; }) {
        o.loss_scaler.scale = c.fixed_scale;
    }
    if constexpr (requires { o.loss_scaler.growth_interval; }) {
        o.loss_scaler.initial_scale = c.scaler.initial;
        o.loss_scaler.growth_factor = c.scaler.growth;
        o.loss_scaler.backoff_factor = c.scaler.backoff;
        o.loss_scaler.growth_interval = c.scaler.interval;
        o.loss_scaler.hysteresis = c.scaler.hysteresis;
        o.loss_scaler.consecutive_hysteresis = c.scaler.is_consecutive;
        o.loss_scaler.minimum = c.scaler.minimum;
        o.loss_scaler.maximum = c.scaler.maximum;
    }
    if (!c.lists_groups) {
        set(o.optimizer, c.groups.front());
    }
    for (std::size_t group = 0; c.lists_groups && group < c.groups.size(); ++group) {
        auto& listed = o.groups.emplace_back();
        set(listed.optimizer, c.groups[group]);
        listed.learning_rate_factor = c.groups[group].learning_rate_factor;
    }
    if constexpr (requires { o.master_weights.seed; }) {
        o.master_weights.seed = rounding_seed(c);
    }
    o.reduction.kind = c.combine == Combine::mean  ? ReductionKind::mean
                       : c.combine == Combine::sum ? ReductionKind::sum
                                                   : ReductionKind::mean_over_ranks;
    o.reduction.wire_bytes = c.wire_elements * sizeof(float);
    o.reduction.schedule = c.schedule == Schedule::boundary ? ReductionSchedule::boundary
                                                            : ReductionSchedule::every_micro_step;
    o.reduction.predivide = c.predivide;
    o.reduction.one_micro_step = c.promises_one;
    if constexpr (requires { o.feedback.beta; }) {
        o.feedback = {.beta = c.beta, .reset_every = c.reset_every};
    }
    if constexpr (requires { o.partitioner.shares; }) {
        o.partitioner.shares = c.shares;
    }
    return o;
}

} // namespace zero::test::oracle
