#pragma once

#include "../environment.hpp"

#include "../../core/detail/text.hpp"
#include "variables.hpp"

#include <array>
#include <cstdlib>

namespace ZERO_NAMESPACE::launch {

namespace detail {

/// The names of the variables of one launcher.
struct LauncherNames {
    char const* launcher;
    char const* rank;
    char const* world;
    char const* local_rank;
};

/// The launchers in order of preference. Slurm is last: its variables may describe the surrounding
/// job.
inline constexpr std::array<LauncherNames, 4> launchers{
    {{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
     {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
     {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
     {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}};

inline constexpr int most_processes = 1 << 24;

ZERO_COLD_INLINE Environment read_launcher(Variables const& variables, LauncherNames const& names) {
    Environment result;
    result.launcher = names.launcher;
    result.world =
        variables.integer(names.world, "the number of ranks, at least 1", 1, most_processes);
    std::string const ranks =
        zero::detail::text({"from 0 to ", names.world, " - 1 = ", result.world - 1});
    result.rank =
        variables.integer(names.rank, "the rank of this process, " + ranks, 0, result.world - 1);
    result.local_rank = variables.integer(
        names.local_rank, "the rank of this process on its machine, " + ranks, 0, result.world - 1);
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
    detail::Variables const variables(lookup, context);
    detail::LauncherNames const* chosen = nullptr;
    Environment result;
    for (detail::LauncherNames const& names : detail::launchers) {
        bool const is_set =
            variables.find(names.rank) != nullptr || variables.find(names.world) != nullptr;
        bool const is_slurm = &names == &detail::launchers.back();
        if (!is_set || (is_slurm && chosen != nullptr)) {
            continue;
        }
        Environment const found = detail::read_launcher(variables, names);
        if (chosen == nullptr) {
            chosen = &names;
            result = found;
        } else {
            detail::require_equal(names.rank, found.rank, chosen->rank, result.rank);
            detail::require_equal(names.world, found.world, chosen->world, result.world);
        }
    }
    if (chosen == nullptr) {
        detail::Variables::refuse(detail::launchers.front().rank, "is missing",
                                  "the rank of this process, and no other launcher was found");
    }
    if (variables.find("PMIX_RANK") != nullptr) {
        detail::require_equal(
            "PMIX_RANK",
            variables.integer("PMIX_RANK", "the rank of this process", 0, detail::most_processes),
            chosen->rank, result.rank);
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
