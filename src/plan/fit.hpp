#pragma once

// The planner the other way round: the stages and options that fit into a memory. All numbers are
// those of `plan`.

#include "column.hpp"

#include <zero/core/dtype.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/parameter_spec.hpp>
#include <zero/layout/stage_table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace planner {

/// What is to be trained, and on what.
struct Task {
    std::vector<zero::ParameterSpec> model;
    std::size_t ranks = 1;
    std::size_t micro_steps = 1;
    std::size_t accumulate_bytes = 4;
    std::optional<zero::CommunicationModel> network{}; ///< none: traffic decides
    double tier_rate = 0; ///< bytes per second of the link to the host; 0: its time is not known
    std::uint64_t memory = 0; ///< bytes of a rank
};

/// One stage with its options.
struct Candidate {
    int stage = 1;
    Policies policies{};
    Column column{};
    double seconds = 0;      ///< of communication in a step; 0 without a network
    double host_seconds = 0; ///< of the link to the host

    [[nodiscard]] std::uint64_t bytes() const { return column.memory.engine_bytes(); }
};

/// Returns the bytes of the leases of a plan.
inline std::uint64_t lease_bytes(zero::MemoryPlan const& memory) {
    return memory[zero::BufferKind::gradient_leases].bytes()
           + memory[zero::BufferKind::parameter_leases].bytes();
}

/// Returns the cost by which candidates are compared.
inline double cost_of(Candidate const& candidate, Task const& task) {
    return task.network ? candidate.seconds + candidate.host_seconds
                        : static_cast<double>(candidate.column.read_bytes());
}

/// Costs that differ by less are equal.
inline constexpr double tolerance = 1.05;

/// Returns whether only the largest unit has room.
inline bool is_limited(zero::GatherOptions const& gather) {
    return gather.max_live_elements != zero::GatherOptions::all;
}

/// Returns the options to try in a stage, the usual ones first.
inline std::vector<Policies> policies_to_try(int stage, Task const& task, bool on_host) {
    using Schedule = zero::ReductionSchedule;
    Policies base{.on_host = on_host};
    base.one_micro_step = task.micro_steps == 1 && task.accumulate_bytes == 2 && stage == 1;
    std::vector<Policies> schedules{base};
    schedules.front().schedule = zero::default_schedule(stage);
    // Sums that a rank holds in full would stay on the device.
    if (stage != 1 && task.micro_steps > 1 && !on_host) {
        schedules.push_back(base);
        schedules.back().schedule = Schedule::boundary;
    }
    std::vector<Policies> all;
    for (Policies const& schedule : schedules) {
        if (stage != 3) {
            for (std::size_t const mebibytes : {25U, 100U, 400U, 5U}) {
                all.push_back(schedule);
                all.back().bucketer.bucket_bytes = mebibytes << 20U;
            }
            continue;
        }
        std::size_t elements = 0;
        for (zero::ParameterSpec const& spec : task.model) elements += spec.elements;
        // One unit at a time instead of two.
        Policies alone = schedule;
        alone.gather.prefetch_elements = 0;
        alone.gather.max_live_elements = largest_unit(task.model, task.ranks);
        constexpr std::size_t everything = zero::GatherOptions::all;
        for (std::size_t const kept :
             {std::size_t{0}, everything, elements / 4 * 3, elements / 2, elements / 4}) {
            if (on_host && kept != 0) continue;
            all.push_back(schedule);
            all.back().gather.keep_until_update = kept;
        }
        all.push_back(alone);
    }
    return all;
}

inline Candidate try_out(Task const& task, int stage, Policies const& policies) {
    Candidate candidate{.stage = stage,
                        .policies = policies,
                        .column = plan(task.model, task.ranks, task.accumulate_bytes, stage,
                                       task.micro_steps, policies)};
    if (task.network) {
        candidate.seconds =
            task.network->predict(candidate.column.world, candidate.column.step).total();
    }
    if (policies.on_host && task.tier_rate != 0) {
        candidate.host_seconds = tier_seconds(candidate.column, task.tier_rate);
    }
    return candidate;
}

/// Returns all candidates, the lowest stage and the most usual options first.
inline std::vector<Candidate> candidates_of(Task const& task, bool on_host) {
    std::vector<Candidate> all;
    for (int const stage : {1, 2, 3}) {
        for (Policies const& policies : policies_to_try(stage, task, on_host)) {
            all.push_back(try_out(task, stage, policies));
        }
    }
    return all;
}

/// Sorts candidates by cost. Of those whose costs are equal, the first one stays before the others.
inline std::vector<Candidate> by_cost(std::vector<Candidate> candidates, Task const& task) {
    std::vector<Candidate> sorted;
    while (!candidates.empty()) {
        double least = cost_of(candidates.front(), task);
        for (Candidate const& candidate : candidates) {
            least = std::min(least, cost_of(candidate, task));
        }
        auto const next =
            std::find_if(candidates.begin(), candidates.end(), [&](Candidate const& candidate) {
                return cost_of(candidate, task) <= tolerance * least;
            });
        sorted.push_back(*next);
        candidates.erase(next);
    }
    return sorted;
}

/// What fits.
struct Fit {
    std::vector<Candidate> fitting{}; ///< the best first; of each stage those that take less memory
                                      ///< than the ones before them
    bool on_host = false;             ///< they need the host
    Candidate smallest{};             ///< of all that were tried, also where nothing fits
    std::size_t enough_ranks = 0;     ///< where nothing fits; see below
};

inline Candidate smallest_of(std::vector<Candidate> const& candidates) {
    return *std::min_element(
        candidates.begin(), candidates.end(),
        [](Candidate const& one, Candidate const& other) { return one.bytes() < other.bytes(); });
}

/// Returns the number of ranks on which something fits without the host: that of the task times a
/// power of two; 0 if there is none.
inline std::size_t enough_ranks(Task task) {
    constexpr std::size_t most_ranks = 100'000;
    task.network.reset(); // it may have fewer hosts
    while (task.ranks <= most_ranks / 2) {
        task.ranks *= 2;
        if (smallest_of(candidates_of(task, false)).bytes() <= task.memory) {
            return task.ranks;
        }
    }
    return 0;
}

inline Fit fit(Task const& task) {
    Fit result;
    for (bool const on_host : {false, true}) {
        std::vector<Candidate> const all = candidates_of(task, on_host);
        std::uint64_t least[4] = {~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0},
                                  ~std::uint64_t{0}};
        std::vector<Candidate> fitting;
        for (Candidate const& candidate : all) {
            if (candidate.bytes() <= task.memory) fitting.push_back(candidate);
        }
        for (Candidate const& candidate : by_cost(std::move(fitting), task)) {
            if (candidate.bytes() < least[candidate.stage]) {
                least[candidate.stage] = candidate.bytes();
                result.fitting.push_back(candidate);
            }
        }
        result.on_host = on_host;
        Candidate const smallest = smallest_of(all);
        if (!on_host || smallest.bytes() < result.smallest.bytes()) result.smallest = smallest;
        if (!result.fitting.empty()) return result;
    }
    result.enough_ranks = enough_ranks(task);
    return result;
}

/// Returns the six lines that make the engine of a candidate. They use a type `Communicator`, a
/// `communicator` of it, and `parameters`.
inline std::string code_of(Candidate const& candidate, std::size_t accumulate_bytes) {
    auto const number = [](std::size_t value) {
        return value == zero::GatherOptions::all ? "zero::GatherOptions::all"
                                                 : std::to_string(value);
    };
    int const stage = candidate.stage;
    Policies const& policies = candidate.policies;
    std::string stage_type = "zero::ZeroStage<" + std::to_string(stage)
                             + ", zero::AdamW, zero::Parameters<zero::bfloat16>, Communicator";
    if (accumulate_bytes == 2) {
        stage_type += ", zero::GradientReduction<void, void, zero::bfloat16>";
    }
    if (policies.on_host) {
        stage_type += ", zero::Offload<zero::To<zero::HostMemory";
        for (auto const& [least_stage, kind] :
             {std::pair(0, "optimizer_state"), std::pair(0, "master_weights"),
              std::pair(2, "gradients"), std::pair(3, "parameters")}) {
            if (stage >= least_stage) stage_type += std::string(", zero::BufferKind::") + kind;
        }
        stage_type += ">, zero::UpdateOnDevice>";
    }
    std::string code = "using Stage = " + stage_type + ">;\nStage::Options options;\n";
    if (stage == 3) {
        auto const& gather = policies.gather;
        code += "options.gather.prefetch_elements = "
                + (gather.prefetch_elements ? number(*gather.prefetch_elements) : "std::nullopt")
                + ";\noptions.gather."
                + (is_limited(gather) ? "max_live_elements = " + number(gather.max_live_elements)
                                      : "keep_until_update = " + number(gather.keep_until_update))
                + ";\n";
    } else {
        code += "options.bucketer.bucket_bytes = " + number(policies.bucketer.bucket_bytes)
                + ";\noptions.reduction.one_micro_step = "
                + (policies.one_micro_step ? "true" : "false") + ";\n";
    }
    bool const is_boundary = policies.schedule == zero::ReductionSchedule::boundary;
    return code + "options.reduction.schedule = zero::ReductionSchedule::"
           + (is_boundary ? "boundary" : "every_micro_step")
           + ";\nStage engine(communicator, parameters, options);\n";
}

/// Returns the options of a candidate in words.
inline std::string options_of(Candidate const& candidate) {
    Policies const& policies = candidate.policies;
    std::string words;
    if (candidate.stage == 3) {
        auto const& gather = policies.gather;
        words = is_limited(gather) ? "one unit at a time" : "prefetch of one unit";
        if (gather.keep_until_update != 0) {
            char part[64];
            std::snprintf(part, sizeof part, ", %.1f GB of units kept until the update",
                          2e-9 * static_cast<double>(gather.keep_until_update));
            words += gather.keep_until_update == zero::GatherOptions::all
                         ? ", all units kept until the update"
                         : part;
        }
    } else {
        words = "buckets of " + std::to_string(policies.bucketer.bucket_bytes >> 20U) + " MiB";
    }
    words += policies.schedule == zero::ReductionSchedule::boundary ? ", reduced once a step"
                                                                    : ", reduced every micro-step";
    if (policies.one_micro_step) words += ", sums in place of gradients";
    if (policies.on_host) words += ", states on the host";
    return words;
}

/// Returns what would help where nothing fits.
inline std::vector<std::string> remedies_of(Fit const& result, Task const& task) {
    std::vector<std::string> remedies;
    if (result.enough_ranks != 0) {
        remedies.push_back(std::to_string(result.enough_ranks) + " ranks suffice");
    } else {
        remedies.push_back("no number of ranks suffices, because leases do not shrink with it: cut "
                           "the largest units (zero::tiles for one tensor), see below");
    }
    if (task.accumulate_bytes == 4) {
        remedies.push_back("--accumulate-bytes 2 takes 2 bytes less for each sum of gradients");
    }
    remedies.push_back("--offload-ratio, without --memory, shows states in a file");
    return remedies;
}

} // namespace planner
