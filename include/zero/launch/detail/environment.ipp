#pragma once

#include "../environment.hpp"

#include "../../core/detail/text.hpp"
#include "variables.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::launch {

namespace detail {

/// The names of the variables of one launcher. An alternative name may be null.
struct LauncherNames {
    char const* launcher;
    char const* command;
    char const* rank;
    char const* world;
    char const* local_rank;
    char const* other_world;
    char const* other_local_rank;
};

/// Launchers whose variables must agree where several are set, in order of preference.
inline constexpr LauncherNames torchrun_names{"torchrun",   "torchrun", "RANK", "WORLD_SIZE",
                                              "LOCAL_RANK", nullptr,    nullptr};
inline constexpr LauncherNames open_mpi_names{"Open MPI",
                                              "mpirun",
                                              "OMPI_COMM_WORLD_RANK",
                                              "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                              nullptr,
                                              nullptr};
inline constexpr LauncherNames pmi_names{
    "PMI", "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr, "PMI_LOCAL_RANK"};

/// The managers of jobs. Their variables may describe the process that started the launcher.
inline constexpr LauncherNames flux_names{
    "Flux", "flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", nullptr, nullptr};
inline constexpr LauncherNames slurm_names{"Slurm",        "srun",          "SLURM_PROCID",
                                           "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS",
                                           nullptr};

inline constexpr int most_processes = 1 << 24;

/// Returns whether two variables are set and have the same value.
ZERO_COLD_INLINE bool are_equal(Variables const& variables, char const* a, char const* b) {
    char const* const value = variables.find(a);
    char const* const other = b == nullptr ? nullptr : variables.find(b);
    return value != nullptr && other != nullptr && std::string_view(value) == other;
}

ZERO_COLD_INLINE bool is_set(Variables const& variables, LauncherNames const& names) {
    return variables.find(names.rank) != nullptr || variables.find(names.world) != nullptr;
}

/// Returns whether PMI_RANK and PMI_SIZE were set by a manager of jobs, which has its own names for
/// the rank on the machine.
ZERO_COLD_INLINE bool is_pmi_of(Variables const& variables, LauncherNames const& manager) {
    bool const is_alone = variables.find(pmi_names.local_rank) == nullptr
                          && variables.find(pmi_names.other_local_rank) == nullptr;
    return is_alone && are_equal(variables, pmi_names.rank, manager.rank)
           && (are_equal(variables, pmi_names.world, manager.world)
               || are_equal(variables, pmi_names.world, manager.other_world));
}

/// Returns whether a process of a job of Slurm was started by its batch script, or in the shell of
/// `salloc`, without srun.
ZERO_COLD_INLINE bool is_outside_of_steps(Variables const& variables) {
    for (char const* const of_a_step :
         {"SLURM_STEP_ID", slurm_names.other_world, pmi_names.rank, "PMIX_RANK"}) {
        if (variables.find(of_a_step) != nullptr) {
            return false;
        }
    }
    char const* const rank = variables.find(slurm_names.rank);
    return rank == nullptr ? variables.find(slurm_names.local_rank) == nullptr
                           : std::string_view(rank) == "0";
}

ZERO_COLD_INLINE Environment read_launcher(Variables const& variables, LauncherNames const& names) {
    auto const chosen = [&](char const* name, char const* other) {
        return other != nullptr && variables.find(other) != nullptr ? other : name;
    };
    char const* const world = chosen(names.world, names.other_world);
    char const* const local_rank = variables.find(names.local_rank) != nullptr
                                       ? names.local_rank
                                       : chosen(names.local_rank, names.other_local_rank);
    Environment result;
    result.launcher = names.launcher;
    result.world = variables.integer(world, "the number of ranks, at least 1", 1, most_processes);
    std::string const ranks =
        zero::detail::text({"from 0 to ", world, " - 1 = ", result.world - 1});
    result.rank =
        variables.integer(names.rank, "the rank of this process, " + ranks, 0, result.world - 1);
    result.local_rank = variables.integer(
        local_rank, "the rank of this process on its machine, " + ranks, 0, result.world - 1);
    result.reason =
        zero::detail::text({"rank ", result.rank, " of ", result.world, ": ", names.command,
                            " set ", names.rank, " = ", result.rank, ", ", world, " = ",
                            result.world, " and ", local_rank, " = ", result.local_rank});
    return result;
}

/// Returns the only rank of a job of Slurm in which srun did not start this process.
ZERO_COLD_INLINE Environment read_batch_script(Variables const& variables) {
    Environment result;
    result.launcher = slurm_names.launcher;
    result.reason = "rank 0 of 1: this process was started in a job of Slurm without srun, because "
                    "SLURM_STEP_ID is not set";
    if (char const* const tasks = variables.find(slurm_names.world)) {
        result.reason += zero::detail::text(
            {"; ", slurm_names.world, " = ", tasks, " is what srun would start"});
    }
    return result;
}

ZERO_COLD_INLINE void require_equal(char const* name, int value, char const* other, int expected) {
    if (value != expected) {
        Variables::refuse(name, zero::detail::text({"is '", value, '\''}),
                          zero::detail::text({"equal to ", other, " = ", expected,
                                              " while both are set; unset those of one launcher"}));
    }
}

} // namespace detail

ZERO_COLD_INLINE Environment environment(VariableLookup lookup, void* context) {
    using namespace detail;
    Variables const variables(lookup, context);
    LauncherNames const* chosen = nullptr;
    Environment result;
    // torchrun that another launcher started: the variables of the other one describe torchrun.
    bool const is_inside_torchrun =
        is_set(variables, torchrun_names) && variables.find("TORCHELASTIC_RUN_ID") != nullptr;
    bool const is_pmi_of_job =
        is_pmi_of(variables, flux_names) || is_pmi_of(variables, slurm_names);
    for (LauncherNames const* const names : {&torchrun_names, &open_mpi_names, &pmi_names}) {
        if (!is_set(variables, *names) || (names == &pmi_names && is_pmi_of_job)
            || (chosen != nullptr && is_inside_torchrun)) {
            continue;
        }
        Environment const found = read_launcher(variables, *names);
        if (chosen == nullptr) {
            chosen = names;
            result = found;
        } else {
            require_equal(names->rank, found.rank, chosen->rank, result.rank);
            require_equal(names->world, found.world, chosen->world, result.world);
        }
    }
    bool const is_inside_job = chosen != nullptr;
    for (LauncherNames const* const names : {&flux_names, &slurm_names}) {
        if (chosen == nullptr && is_set(variables, *names)) {
            chosen = names;
            result = names == &slurm_names && is_outside_of_steps(variables)
                         ? read_batch_script(variables)
                         : read_launcher(variables, *names);
        }
    }
    if (chosen == nullptr) {
        Variables::refuse(torchrun_names.rank, "is missing",
                          "the rank of this process, and no other launcher was found");
    }
    char const* const pmix = variables.find("PMIX_RANK");
    if (pmix != nullptr) {
        bool const is_of_job = is_inside_job
                               && (are_equal(variables, "PMIX_RANK", flux_names.rank)
                                   || are_equal(variables, "PMIX_RANK", slurm_names.rank));
        if (!is_inside_torchrun && !is_of_job) {
            require_equal(
                "PMIX_RANK",
                variables.integer("PMIX_RANK", "the rank of this process", 0, most_processes),
                chosen->rank, result.rank);
        } else if (!are_equal(variables, "PMIX_RANK", chosen->rank)) {
            result.reason +=
                zero::detail::text({"; PMIX_RANK = ", pmix, " is that of the process that ",
                                    chosen->command, " was started by"});
        }
    }
    return result;
}

ZERO_COLD_INLINE Environment environment() {
    return environment(
        [](void*, char const* name) -> char const* {
            return std::getenv(name); // NOLINT(concurrency-mt-unsafe): documented
        },
        nullptr);
}

} // namespace ZERO_NAMESPACE::launch
