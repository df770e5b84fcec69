#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../launcher_error.hpp"

#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::launch::detail {

/// @brief The variables in which launchers describe a process. Used by `environment` and by the
/// start of NCCL.
class Variables {
public:
    using Lookup = char const* (*)(void* context, char const* name); ///< as `VariableLookup`

    Variables(Lookup lookup, void* context) noexcept : _lookup(lookup), _context(context) {}

    /// @brief Returns the value, or null.
    [[nodiscard]] char const* find(char const* name) const noexcept {
        return _lookup(_context, name);
    }

    /// @brief Returns the value. @param needed its valid values, for messages. @throws
    /// LauncherError
    [[gnu::cold]] [[nodiscard]] std::string text(char const* name, std::string_view needed) const {
        char const* const value = find(name);
        if (value == nullptr) {
            refuse(name, "is missing", needed);
        }
        return value;
    }

    /// @brief Parses a variable that must consist of digits only: no sign, no blanks, nothing after
    /// them. @throws LauncherError
    [[gnu::cold]] [[nodiscard]] int integer(char const* name, std::string_view needed, int least,
                                            int most) const {
        std::string const digits = text(name, needed);
        long value = 0;
        bool is_good = !digits.empty() && digits.size() <= 10;
        for (char const letter : digits) {
            is_good = is_good && letter >= '0' && letter <= '9';
            value = value * 10 + (letter - '0');
        }
        if (!is_good || value < least || value > most) {
            refuse(name, "is '" + digits + '\'', needed);
        }
        return static_cast<int>(value);
    }

    /// @brief Throws for one variable. @param found its state, such as "is missing". @throws
    /// LauncherError always
    [[noreturn]] [[gnu::cold]] static void refuse(char const* name, std::string_view found,
                                                  std::string_view needed) {
        zero::detail::throw_error<LauncherError>(
            {"zero: the environment variable ", name, ' ', found, "; it must be ", needed,
             ". torchrun sets RANK, WORLD_SIZE and LOCAL_RANK (and MASTER_ADDR and MASTER_PORT), "
             "mpirun of Open MPI OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE and "
             "OMPI_COMM_WORLD_LOCAL_RANK, mpiexec of MPICH, Intel and Cray PMI_RANK, PMI_SIZE and "
             "MPI_LOCALRANKID or PMI_LOCAL_RANK, flux run FLUX_TASK_RANK, FLUX_JOB_SIZE and "
             "FLUX_TASK_LOCAL_ID, srun SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, and "
             "SLURM_LOCALID; PMIX_RANK is compared with the rank. Under another launcher set RANK, "
             "WORLD_SIZE and LOCAL_RANK for each process."});
    }

private:
    Lookup _lookup;
    void* _context;
};

} // namespace ZERO_NAMESPACE::launch::detail
