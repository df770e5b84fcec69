#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../launch/detail/variables.hpp"
#include "../../launch/environment.hpp"
#include "../nccl_system.hpp"

#include <string>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief The place of this process, and the address at which the ranks meet. `launch::environment`
/// reads the variables of the launcher; NCCL also needs MASTER_ADDR and a port.
struct NcclEnvironment {
    int rank = 0;
    int world = 1;
    int local_rank = 0;  ///< rank among the processes of this machine
    std::string reason;  ///< `launch::Environment::reason`
    std::string address; ///< address of rank 0, "host:port" as in NCCL_COMM_ID
};

/// @brief Looks a variable up in an `NcclSystem`.
inline char const* variable_of(void* system, char const* name) noexcept {
    return static_cast<NcclSystem*>(system)->variable(name);
}

/// @brief Returns ZERO_NCCL_PORT, or the port after MASTER_PORT, which itself belongs to the
/// launcher's store.
inline int nccl_port(launch::detail::Variables const& variables) {
    if (variables.find("ZERO_NCCL_PORT") != nullptr) {
        return variables.integer("ZERO_NCCL_PORT",
                                 "a port from 1 to 65535 that is free on the machine of rank 0", 1,
                                 65535);
    }
    return variables.integer("MASTER_PORT",
                             "a port from 1 to 65534 (the next one is used), unless ZERO_NCCL_PORT "
                             "gives the port",
                             1, 65534)
           + 1;
}

/// @brief Reads and checks all variables.
/// @throws LauncherError naming the variable, its value and its valid values
inline NcclEnvironment read_environment(NcclSystem& system) {
    launch::detail::Variables const variables(variable_of, &system);
    launch::Environment const launched = launch::environment(variable_of, &system);
    NcclEnvironment environment{
        launched.rank, launched.world, launched.local_rank, launched.reason, {}};
    std::string const host = variables.text(
        "MASTER_ADDR", "the name or address of the machine of rank 0; this is " + launched.reason);
    if (host.empty() || host.find_first_of(" \t\r\n/") != std::string::npos) {
        launch::detail::Variables::refuse(
            "MASTER_ADDR", "is '" + host + '\'',
            "the name or address of the machine of rank 0, without blanks and without a protocol");
    }
    bool const is_bare_ipv6 = host.front() != '[' && host.find(':') != std::string::npos;
    environment.address =
        (is_bare_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(nccl_port(variables));
    return environment;
}

} // namespace ZERO_NAMESPACE::cuda::detail
