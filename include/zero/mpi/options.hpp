#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"

#include <condition_variable> // also declares durations, cheaper than <chrono>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::mpi {

/// @brief The order in which `mpi::Communicator` adds the values of the ranks.
enum class Order : std::uint8_t {
    rank,    ///< from rank 0 on, in float, rounded once: the bits of every other transport
    library, ///< that of MPI_Ireduce_scatter and MPI_Ireduce for float, which may be faster;
             ///< bfloat16 and float16 are added in rank order, because MPI has no such types, and
             ///< so are the values of two ranks, whose sums have one order
};

/// @brief The options of `mpi::Communicator`. `order`, `scratch_bytes` and `shares_memory` must
/// be equal on all ranks.
struct Options {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief The order of sums.
    Order order = Order::rank;

    /// @brief The time that a rank waits for its peers without receiving anything that it waits
    /// for; must be positive. Counts from the end of the previous collective. Time in which the
    /// process itself did not run does not count: a job that is stopped as a whole and resumed
    /// continues.
    std::chrono::milliseconds time_out = std::chrono::minutes(30);

    /// @brief The time between two heartbeats of a rank that waits; must be positive. At most a
    /// quarter of the time-out is used.
    std::chrono::milliseconds heartbeat = std::chrono::seconds(1);

    /// @brief The longest time that a failure, and the destructor after it, wait together for the
    /// peers to confirm that nothing is in flight; must be positive. It is added to the time-out: a
    /// `TimedOut` is thrown after the sum at the latest.
    std::chrono::milliseconds finish_time_out = std::chrono::seconds(5);

    /// @brief The size of the buffer through which collectives receive, from 1 KiB per rank (less
    /// is raised to that) to 1 GiB. Messages are cut to at most half of it, so it need not grow
    /// with the buckets.
    std::size_t scratch_bytes = std::size_t{8} << 20U;

    /// @brief The resource of that buffer, which must outlive the communicator; null:
    /// `HostBackend::default_memory()`.
    MemoryResource* memory = nullptr;

    /// @brief Whether ranks that all run on one host read one another's buffers in place. Engines
    /// then take the buffers from `Communicator::shared_memory`. Where the system refuses, and for
    /// other memory, they send messages, with the same bits.
    bool shares_memory = true;
};

/// @brief A function of MPI failed. `code()` is its error class, such as MPI_ERR_OTHER.
class MpiError : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

} // namespace ZERO_NAMESPACE::mpi
