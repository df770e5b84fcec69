#pragma once

#include "../core/detail/namespace.hpp"

#include <string>

namespace ZERO_NAMESPACE::launch {

/// @brief Returns the value of an environment variable, or null if it is not set.
/// @param context the second argument of `environment`
using VariableLookup = char const* (*)(void* context, char const* name);

/// @brief The place of this process among the processes that a launcher started.
struct Environment {
    int rank = 0;         ///< from 0 to world - 1
    int world = 1;        ///< number of processes, at least 1
    int local_rank = 0;   ///< rank among the processes of this machine, from 0 to world - 1
    std::string launcher; ///< launcher whose variables were used: "torchrun", "Open MPI", "PMI",
                          ///< "Flux" or "Slurm"
    std::string reason;   ///< the variables that were used, with their values, and why others do
                          ///< not count; one sentence for a log
};

/// @brief Reads rank, world and rank on the machine from the variables of the launcher.
///
/// These are, in this order:
/// 1. torchrun: RANK, WORLD_SIZE, LOCAL_RANK;
/// 2. mpirun of Open MPI: OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_RANK;
/// 3. mpiexec of MPICH, Intel and Cray: PMI_RANK, PMI_SIZE, and MPI_LOCALRANKID or PMI_LOCAL_RANK;
/// 4. flux run: FLUX_TASK_RANK, FLUX_JOB_SIZE, FLUX_TASK_LOCAL_ID;
/// 5. srun: SLURM_PROCID, SLURM_STEP_NUM_TASKS or else SLURM_NTASKS, SLURM_LOCALID.
///
/// - If several of the first three are set, they must agree, unless torchrun itself was started by
///   one of them (TORCHELASTIC_RUN_ID is set): then its numbers count.
/// - Flux and Slurm count only if none of the first three is set, because they also describe the
///   job in which another launcher runs. PMI_RANK and PMI_SIZE without a rank on the machine, and
///   PMIX_RANK, are theirs if they have the same values, as under `srun --mpi=pmi2`.
/// - Otherwise PMIX_RANK must equal the rank.
/// - A process that Slurm's batch script or `salloc` starts without srun is the only one, whatever
///   SLURM_NTASKS says. Such a process has no SLURM_STEP_ID.
///
/// No other thread may change the environment during the call.
/// @throws LauncherError naming the variable, its value and its valid values, and all variables
/// that were looked for
Environment environment();

/// @brief Reads the variables through `lookup(context, name)`. @throws LauncherError
Environment environment(VariableLookup lookup, void* context);

} // namespace ZERO_NAMESPACE::launch

#if !defined(ZERO_COMPILED)
#include "detail/environment.ipp"
#endif
