#pragma once

#include "../core/detail/namespace.hpp"
#include "variable_lookup.hpp"

#include <string>

namespace ZERO_NAMESPACE::launch {

/// @brief The place of this process among the processes that a launcher started.
struct Environment {
    int rank = 0;         ///< from 0 to world - 1
    int world = 1;        ///< number of processes, at least 1
    int local_rank = 0;   ///< rank among the processes of this machine, from 0 to world - 1
    std::string launcher; ///< launcher whose variables were used: "torchrun", "Open MPI", "PMI" or
                          ///< "Slurm"
};

/// @brief Reads rank, world and rank on the machine from the variables of the launcher.
///
/// torchrun sets RANK, WORLD_SIZE and LOCAL_RANK; mpirun of Open MPI OMPI_COMM_WORLD_RANK, _SIZE
/// and _LOCAL_RANK; mpiexec of MPICH PMI_RANK, PMI_SIZE and MPI_LOCALRANKID; srun SLURM_PROCID,
/// SLURM_NTASKS and SLURM_LOCALID. If several of the first three are set, they must agree. Those of
/// Slurm count only if no other is set, because they also describe the job in which another
/// launcher runs. If PMIX_RANK is set, it must equal the rank. No other thread may change the
/// environment meanwhile.
/// @throws LauncherError naming the variable, its value and its valid values, and all variables
/// that were looked for
Environment environment();

/// @brief Reads the variables through `lookup(context, name)`. @throws LauncherError
Environment environment(VariableLookup lookup, void* context);

} // namespace ZERO_NAMESPACE::launch

#if !defined(ZERO_COMPILED)
#include "detail/environment.ipp"
#endif
