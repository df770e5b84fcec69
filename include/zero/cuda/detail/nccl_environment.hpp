#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../nccl_error.hpp"
#include "../nccl_system.hpp"

#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief The environment variables that a launcher such as torchrun sets for each process.
struct NcclEnvironment {
    int rank = 0;
    int world = 1;
    int local_rank = 0;  ///< rank among the processes of this machine
    std::string address; ///< address of rank 0, "host:port" as in NCCL_COMM_ID
};

[[noreturn]] inline void throw_bad_variable(char const* name, std::string_view found,
                                            std::string_view needed) {
    zero::detail::throw_error<LauncherError>(
        {"zero: the environment variable ", name, ' ', found, "; it must be ", needed,
         ". torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; under another "
         "launcher set them for each process, or start "
         "from a unique id (NcclCommunicator::from_unique_id)."});
}

inline std::string required_variable(NcclSystem& system, char const* name, char const* needed) {
    char const* const text = system.variable(name);
    if (text == nullptr) {
        throw_bad_variable(name, "is missing", needed);
    }
    return text;
}

/// @brief Parses a variable that must consist of digits only: no sign, no blanks, nothing after
/// them.
inline int integer_variable(NcclSystem& system, char const* name, char const* needed, int least,
                            int most) {
    std::string const text = required_variable(system, name, needed);
    long value = 0;
    bool is_good = !text.empty() && text.size() <= 10;
    for (char const letter : text) {
        is_good = is_good && letter >= '0' && letter <= '9';
        value = value * 10 + (letter - '0');
    }
    if (!is_good || value < least || value > most) {
        throw_bad_variable(name, "is '" + text + '\'', needed);
    }
    return static_cast<int>(value);
}

/// @brief Returns ZERO_NCCL_PORT, or the port after MASTER_PORT, which itself belongs to the
/// launcher's store.
inline int nccl_port(NcclSystem& system) {
    if (system.variable("ZERO_NCCL_PORT") != nullptr) {
        return integer_variable(system, "ZERO_NCCL_PORT",
                                "a port from 1 to 65535 that is free on the machine of rank 0", 1,
                                65535);
    }
    return integer_variable(system, "MASTER_PORT",
                            "a port from 1 to 65534 (the next one is used), unless ZERO_NCCL_PORT "
                            "gives the port",
                            1, 65534)
           + 1;
}

/// @brief Reads and checks all variables.
/// @throws LauncherError naming the variable, its value and its valid values
inline NcclEnvironment read_environment(NcclSystem& system) {
    constexpr int most = 1 << 24;
    NcclEnvironment environment;
    environment.world =
        integer_variable(system, "WORLD_SIZE", "the number of ranks, at least 1", 1, most);
    std::string const ranks = "from 0 to WORLD_SIZE - 1 = " + std::to_string(environment.world - 1);
    environment.rank = integer_variable(
        system, "RANK", ("the rank of this process, " + ranks).c_str(), 0, environment.world - 1);
    environment.local_rank = integer_variable(
        system, "LOCAL_RANK", ("the rank of this process on its machine, " + ranks).c_str(), 0,
        environment.world - 1);
    std::string const host =
        required_variable(system, "MASTER_ADDR", "the name or address of the machine of rank 0");
    if (host.empty() || host.find_first_of(" \t\r\n/") != std::string::npos) {
        throw_bad_variable(
            "MASTER_ADDR", "is '" + host + '\'',
            "the name or address of the machine of rank 0, without blanks and without a protocol");
    }
    bool const is_bare_ipv6 = host.front() != '[' && host.find(':') != std::string::npos;
    environment.address =
        (is_bare_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(nccl_port(system));
    return environment;
}

} // namespace ZERO_NAMESPACE::cuda::detail
