#pragma once

#include "../../../comm/detail/run_threads.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../launch/detail/variables.hpp"
#include "../../../launch/environment.hpp"
#include "../../nccl_error.hpp"
#include "../../nccl_library.hpp"
#include "../../nccl_options.hpp"
#include "../../nccl_system.hpp"
#include "nccl_abort_cause.hpp"
#include "nccl_flights.hpp"
#include "nccl_lifetime.hpp"
#include "nccl_session.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns the device of the calling thread. @throws CommunicatorError
inline int current_device(NcclSystem& system) {
    int device = 0;
    require_success(system, system.current_device(device), "cudaGetDevice");
    return device;
}

/// @brief Restores the current device at the end of a scope.
class DeviceScope {
public:
    explicit DeviceScope(NcclSystem& system) : _system(&system), _device(current_device(system)) {}
    DeviceScope(DeviceScope const&) = delete;
    DeviceScope& operator=(DeviceScope const&) = delete;
    ~DeviceScope() { _system->set_device(_device); }

private:
    NcclSystem* _system;
    int _device;
};

/// @brief The place of this process, and the address at which the ranks meet. `launch::environment`
/// reads the variables of the launcher; NCCL also needs MASTER_ADDR and a port.
struct NcclEnvironment : launch::Environment {
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
    NcclEnvironment environment{launch::environment(variable_of, &system), {}};
    std::string const host =
        variables.text("MASTER_ADDR", "the name or address of the machine of rank 0; this is "
                                          + environment.reason);
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

/// @brief Sets an environment variable for a scope, and restores the previous state afterwards.
class ScopedVariable {
public:
    ScopedVariable(NcclSystem& system, char const* name, char const* value)
        : _system(&system), _name(name) {
        char const* const previous = system.variable(name);
        _had_value = previous != nullptr;
        _previous = _had_value ? previous : "";
        system.set_variable(name, value);
    }

    ScopedVariable(ScopedVariable const&) = delete;
    ScopedVariable& operator=(ScopedVariable const&) = delete;
    ~ScopedVariable() { _system->set_variable(_name, _had_value ? _previous.c_str() : nullptr); }

private:
    NcclSystem* _system;
    char const* _name;
    bool _had_value = false;
    std::string _previous;
};

/// @brief Checks the ranges of the options. @throws InvalidArgument naming the option
inline void check_options(NcclOptions const& options) {
    if (options.time_out.count() <= 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: a time-out of ", options.time_out.count(),
             " ms; cuda::NcclOptions::time_out must be positive."});
    }
    if (options.finish_time_out.count() < 0 || options.watch_interval.count() < 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: cuda::NcclOptions::finish_time_out and watch_interval must not be negative (",
             options.finish_time_out.count(), " ms, ", options.watch_interval.count(), " ms)."});
    }
    if (options.native_all_reduce && options.order == NcclOrder::rank) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: cuda::NcclOptions::native_all_reduce adds in NCCL's order, and "
             "cuda::NcclOptions::order is "
             "rank; leave one of them out."});
    }
}

/// @brief Checks how collectives are launched. @throws InvalidArgument naming the option
inline void check_launches(NcclLibrary& nccl, NcclOptions const& options) {
    bool const is_range = options.min_ctas >= 0
                          && (options.max_ctas == 0
                              || (options.max_ctas > 0 && options.min_ctas <= options.max_ctas));
    if (!is_range) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: cuda::NcclOptions::min_ctas is ", options.min_ctas, " and max_ctas ",
             options.max_ctas, "; they are at least 1, or 0 for NCCL's choice, and in order."});
    }
    if (options.cluster_size && (*options.cluster_size < 0 || *options.cluster_size > 8)) {
        zero::detail::throw_error<InvalidArgument>({"zero: cuda::NcclOptions::cluster_size is ",
                                                    *options.cluster_size,
                                                    "; it must be from 0 to 8."});
    }
    int const least = options.cta_policy == NcclCtaPolicy::library ? 0
                      : options.cta_policy == NcclCtaPolicy::zero  ? 22800
                                                                   : 22700;
    if (nccl.header_version() < least) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: cuda::NcclOptions::cta_policy needs NCCL ", nccl_version_text(least),
             ", and the program was compiled with the header of NCCL ",
             nccl_version_text(nccl.header_version()),
             "; leave it as it is, or compile with a newer one."});
    }
}

/// @brief Performs the checks that precede every way to start. @throws InvalidArgument,
/// NcclVersionMismatch
inline void check_start(NcclInterface interfaces, NcclOptions const& options) {
    check_options(options);
    require_matching_version(*interfaces.nccl);
}

/// @brief Performs the checks that precede every way to create a communicator. NCCL prefers
/// NCCL_COMM_BLOCKING to the requested mode. @throws InvalidArgument, NcclVersionMismatch
inline void check_making(NcclInterface interfaces, NcclOptions const& options) {
    check_start(interfaces, options);
    check_launches(*interfaces.nccl, options);
    bool const is_blocking = options.mode == NcclMode::blocking;
    char const* const variable = interfaces.system->variable("NCCL_COMM_BLOCKING");
    if (variable != nullptr && std::string_view(variable) == (is_blocking ? "0" : "1")) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: the environment variable NCCL_COMM_BLOCKING is ", variable,
             ", which NCCL obeys whatever cuda::NcclOptions::mode says, and that is ",
             is_blocking ? "blocking" : "non_blocking", "; unset the variable, or set the mode to ",
             is_blocking ? "non_blocking." : "blocking."});
    }
}

/// @brief Waits until NCCL has set up a communicator: until then it refuses all other queries.
/// @throws NcclError, TimedOut
inline void await_set_up(NcclInterface interfaces, NcclHandle handle,
                         NcclSystem::Duration time_out) {
    auto& [nccl, system] = interfaces;
    NcclSystem::Duration const start = system->now();
    NcclResult result = NcclResult::in_progress;
    for (unsigned turn = 0;; ++turn) {
        require_success(*nccl, nccl->get_async_error(handle, result), "ncclCommGetAsyncError",
                        handle);
        require_success(*nccl, result, "the start of the communicator", handle);
        if (result == NcclResult::success) {
            return;
        }
        if (system->now() - start >= time_out) {
            zero::detail::throw_error<TimedOut>(
                {"zero: waited ", time_out.count(),
                 " ms for NCCL to set up the caller's communicator, which all its ranks must "
                 "join; raise cuda::NcclOptions::time_out, or end it with "
                 "ncclCommAbort: the caller still owns it."});
        }
        system->pause(turn);
    }
}

/// @brief Returns the session of a handle that NCCL may still be setting up, once NCCL tells the
/// rank and the number of ranks. @throws NcclError, TimedOut
inline std::unique_ptr<NcclSession> make_session(NcclInterface interfaces, NcclHandle handle,
                                                 bool is_owner, int device,
                                                 NcclOptions const& options,
                                                 std::shared_ptr<NcclAbortCause> cause) {
    auto& [nccl, system] = interfaces;
    await_set_up(interfaces, handle, options.time_out);
    int rank = 0;
    int world = 0;
    require_success(*nccl, nccl->user_rank(handle, rank), "ncclCommUserRank", handle);
    require_success(*nccl, nccl->count(handle, world), "ncclCommCount", handle);
    return std::make_unique<NcclSession>(interfaces, handle, is_owner, rank, world, device, options,
                                         std::move(cause));
}

/// @brief Starts from a caller-owned communicator. The caller still owns it.
inline std::unique_ptr<NcclSession> use_handle(NcclInterface interfaces, NcclHandle handle,
                                               NcclOptions const& options) {
    check_start(interfaces, options);
    if (handle == nullptr) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: cuda::NcclCommunicator got a null ncclComm_t; make one with "
             "ncclCommInitRankConfig, "
             "or use from_unique_id."});
    }
    NcclOptions used = options;
    used.mode = NcclMode::non_blocking; // NCCL does not tell the mode, and the calls of a
                                        // non-blocking communicator must stay on one thread
    auto session = make_session(interfaces, handle, false, current_device(*interfaces.system), used,
                                std::make_shared<NcclAbortCause>());
    session->open("the use of the caller's communicator");
    return session;
}

/// @brief Starts a part of a group, with the options of the group. If this fails after NCCL has
/// split the group, the group is aborted, because the peers may already have their parts.
inline std::unique_ptr<NcclSession> split_group(NcclSession& parent, int color, int key) {
    NcclSession::Part part = parent.split(color, key);
    NcclInterface const interfaces = parent.interfaces();
    std::unique_ptr<NcclSession> session;
    try {
        session = make_session(interfaces, part.handle, true, parent.device(), parent.options(),
                               std::move(part.cause));
        if (parent.shares_process()) {
            session->share_process();
        }
        session->open("the start of a part of the group");
    } catch (...) {
        zero::detail::report_failure(
            static_cast<std::size_t>(parent.rank()),
            [&](std::string_view failure) { parent.abort(failure, false); });
        if (session == nullptr) {
            abort_bounded(interfaces, parent.device(), part.handle);
        }
        throw;
    }
    return session;
}

inline void check_rank(int rank, int world) {
    if (world < 1 || rank < 0 || rank >= world) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: rank ", rank, " of a group of ", world,
             "; ranks go from 0 to world - 1, and world is at least 1."});
    }
}

using NcclSessions = std::vector<std::unique_ptr<NcclSession>>;

/// @brief Returns the sessions that `make()` makes, in time: a blocking NCCL waits in it for absent
/// ranks without limit, and there is no handle yet that could be aborted. `make` must own what it
/// uses.
/// @param what names the start, for messages
template <class Make>
NcclSessions make_in_time(NcclInterface interfaces, int device, NcclOptions const& options,
                          std::string_view what, Make make) {
    if (options.mode == NcclMode::non_blocking) {
        return make();
    }
    auto made = run_within(interfaces, device, with_finite_waits(options).time_out, std::move(make),
                           [](NcclSessions const& late) noexcept {
                               for (auto const& session : late) {
                                   session->abort("the start took longer than its time-out", false);
                               }
                           });
    if (!made) {
        throw_waited(options.time_out, what);
    }
    return std::move(*made);
}

/// @brief Starts by a unique id. @param where how the ranks meet, for messages
inline std::unique_ptr<NcclSession> join_group(NcclInterface interfaces, NcclUniqueId const& id,
                                               int rank, int world, NcclOptions const& options,
                                               std::string const& where = "") {
    check_making(interfaces, options);
    check_rank(rank, world);
    int const device = current_device(*interfaces.system);
    constexpr char const* what =
        "the start of NCCL (all ranks must join, with the same id and the same number of ranks)";
    auto const make = [=] {
        NcclHandle handle = nullptr;
        NcclResult const result = interfaces.nccl->init_rank(handle, world, id, rank, options);
        NcclSessions made;
        made.push_back(std::make_unique<NcclSession>(interfaces, handle, true, rank, world, device,
                                                     options, std::make_shared<NcclAbortCause>()));
        require_success(
            *interfaces.nccl, result,
            zero::detail::text({"ncclCommInitRankConfig on rank ", rank, " of ", world, where}));
        return made;
    };
    auto made = make_in_time(interfaces, device, options,
                             zero::detail::text({what, " on rank ", rank, " of ", world}), make);
    made.front()->open(what);
    return std::move(made.front());
}

/// @brief Makes the device of a local rank current. @param reason where the local rank is from, for
/// messages. @throws LauncherError, CommunicatorError
inline void select_device(NcclSystem& system, int local_rank, std::string const& reason) {
    int devices = 0;
    require_success(system, system.device_count(devices), "cudaGetDeviceCount");
    if (local_rank >= devices) {
        zero::detail::throw_error<LauncherError>(
            {"zero: the rank on this machine is ", local_rank, " (", reason,
             "), but this process sees ", devices,
             " CUDA devices; start at most as many processes on a machine. If the launcher shows "
             "each process only its own device, set RANK and WORLD_SIZE as they are, and "
             "LOCAL_RANK to 0."});
    }
    require_success(system, system.set_device(local_rank),
                    zero::detail::text({"cudaSetDevice(", local_rank, ")"}));
}

/// @brief Starts from the environment variables of a launcher.
inline std::unique_ptr<NcclSession> join_launched_group(NcclInterface interfaces,
                                                        NcclOptions const& options) {
    check_making(interfaces, options);
    NcclEnvironment const environment = read_environment(*interfaces.system);
    select_device(*interfaces.system, environment.local_rank, environment.reason);
    // With this variable set, rank 0 listens at the address, and the id that each rank makes names
    // it. NCCL reads the variable in both calls.
    ScopedVariable const address(*interfaces.system, "NCCL_COMM_ID", environment.address.c_str());
    NcclUniqueId id;
    require_success(*interfaces.nccl, interfaces.nccl->get_unique_id(id),
                    "ncclGetUniqueId for NCCL_COMM_ID=" + environment.address
                        + " (of MASTER_ADDR and the port)");
    return join_group(interfaces, id, environment.rank, environment.world, options,
                      " at " + environment.address
                          + " (another port can be given in ZERO_NCCL_PORT)");
}

/// @brief Refuses a device that is named for several ranks, unless NCCL allows it.
/// @throws InvalidArgument
inline void check_repeated_device(NcclInterface interfaces, int device) {
    constexpr int least_version = 23000;
    char const* const variable = interfaces.system->variable("NCCL_MULTI_RANK_GPU_ENABLE");
    int version = 0;
    require_success(*interfaces.nccl, interfaces.nccl->get_version(version), "ncclGetVersion");
    if (version < least_version || variable == nullptr || std::string_view(variable) != "1") {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: CUDA device ", device,
             " is named for several ranks, which NCCL allows from version 2.30 on if the "
             "environment "
             "variable NCCL_MULTI_RANK_GPU_ENABLE is 1 (this is NCCL ",
             nccl_version_text(version), ", and the variable is ",
             variable == nullptr ? "not set" : variable,
             "). Use Loopback<cuda::Backend> for several ranks on one device."});
    }
}

inline void check_devices(NcclInterface interfaces, std::span<int const> devices) {
    NcclSystem& system = *interfaces.system;
    int count = 0;
    require_success(system, system.device_count(count), "cudaGetDeviceCount");
    if (devices.empty()) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: a group without devices; name at least one."});
    }
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        int const device = devices[rank];
        if (device < 0 || device >= count) {
            zero::detail::throw_error<InvalidArgument>({"zero: rank ", rank, " names CUDA device ",
                                                        device, ", but there are ", count, '.'});
        }
        auto const* const end = devices.data() + rank;
        if (std::find(devices.data(), end, device) != end) {
            check_repeated_device(interfaces, device);
        }
    }
}

/// @brief Makes the sessions of `start_group`, which are not open yet.
inline NcclSessions make_group_sessions(NcclInterface interfaces, NcclUniqueId const& id,
                                        std::span<int const> devices, NcclOptions const& options) {
    auto& [nccl, system] = interfaces;
    int const world = static_cast<int>(devices.size());
    auto const cause = std::make_shared<NcclAbortCause>();
    NcclSessions sessions;
    auto const abort_all = [](void* all) {
        for (auto const& session : *static_cast<NcclSessions*>(all)) {
            session->abort("the start of the group failed", false);
        }
    };
    sessions.reserve(devices.size());
    NcclGroup group(*nccl, abort_all, &sessions);
    require_success(*nccl, group.start(), "ncclGroupStart");
    for (int rank = 0; rank < world; ++rank) {
        int const device = devices[static_cast<std::size_t>(rank)];
        require_success(*system, system->set_device(device),
                        zero::detail::text({"cudaSetDevice(", device, ")"}));
        NcclHandle handle = nullptr;
        NcclResult const result = nccl->init_rank(handle, world, id, rank, options);
        sessions.push_back(std::make_unique<NcclSession>(interfaces, handle, true, rank, world,
                                                         device, options, cause));
        if (world > 1) {
            sessions.back()->share_process();
        }
        require_success(
            *nccl, result,
            zero::detail::text({"ncclCommInitRankConfig on rank ", rank, " of ", world}));
    }
    NcclResult const result = group.end();
    if (result != NcclResult::success && result != NcclResult::in_progress) {
        abort_all(&sessions);
    }
    require_success(*nccl, result, zero::detail::text({"the start of ", world, " ranks of NCCL"}));
    return sessions;
}

/// @brief Starts a rank for each named device in this process, as ncclCommInitAll does. Also
/// creates non-blocking communicators, which that function cannot.
inline NcclSessions start_group(NcclInterface interfaces, std::span<int const> devices,
                                NcclOptions const& options) {
    auto& [nccl, system] = interfaces;
    check_making(interfaces, options);
    check_devices(interfaces, devices);
    DeviceScope const scope(*system);
    NcclUniqueId id;
    require_success(*nccl, nccl->get_unique_id(id), "ncclGetUniqueId");
    constexpr char const* what = "the start of NCCL in one process";
    NcclSessions sessions =
        make_in_time(interfaces, devices.front(), options, what,
                     [=, ranks = std::vector<int>(devices.begin(), devices.end())] {
                         return make_group_sessions(interfaces, id, ranks, options);
                     });
    for (auto const& session : sessions) {
        require_success(*system,
                        system->set_device(devices[static_cast<std::size_t>(session->rank())]),
                        "cudaSetDevice");
        session->open(what);
    }
    return sessions;
}

} // namespace ZERO_NAMESPACE::cuda::detail
