#pragma once

#include "../comm/communicator.hpp"
#include "../comm/detail/host_communicator.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "detail/collectives.hpp"
#include "detail/mpi.hpp"
#include "options.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace ZERO_NAMESPACE::mpi {

/// @brief A communicator between processes over MPI, for memory on the host. One object per rank.
///
/// A collective is one command on the given queue. The command starts non-blocking sends and
/// receives, and polls them together with the deadline and the failures of the peers. The call
/// itself does not wait, unless 512 collectives (fewer in large groups) are ahead of the queue.
/// Sums are formed in float in rank order and rounded once: the bits are those of `Loopback`
/// (`Order::library` differs). No call allocates; MPI itself may.
///
/// MPI must provide MPI_THREAD_SERIALIZED if no other part of the program calls MPI while the
/// communicator exists, otherwise MPI_THREAD_MULTIPLE.
///
/// Ranks of one host read one another's memory in place, if it comes from `shared_memory`: a sum
/// reads what all ranks send, and a gather copies once. Other memory is sent in messages.
///
/// Failures: a rank whose peers do not arrive within the time-out throws `TimedOut`, which names
/// the operation, its number and the ranks that are missing, with the last news of each.
/// Ranks that wait send heartbeats, which also reveal calls that differ: `CollectiveMismatch`. Any
/// failure of a rank reaches all others as `Aborted` with its cause. Afterwards every call throws.
/// If a peer does not answer, a transfer may stay pending: then MPI_Finalize might not return, and
/// the program must end with MPI_Abort, as `mpi::Session` does.
///
/// The destructor waits until the enqueued commands have run, and until the peers have left, at
/// most `Options::finish_time_out`. It must run before MPI_Finalize. If an exception destroys the
/// result of a `split`, the communicator that is destroyed next waits for both.
class Communicator : public zero::detail::HostCommunicator<detail::Collectives> {
public:
    /// @brief Joins the group of the ranks of `communicator`, which is duplicated and stays the
    /// caller's. Collective.
    /// @throws InvalidArgument; MpiError; LayoutMismatch if options differ; TimedOut if ranks are
    /// missing
    explicit Communicator(MPI_Comm communicator, Options const& options = {})
        : HostCommunicator(detail::Collectives::duplicate(communicator, options)) {}
    Communicator(Communicator&&) noexcept = default;
    Communicator& operator=(Communicator&& other) noexcept = default;
    ~Communicator() { detail::Collectives::part(release()); }

    /// @brief Splits the group into groups of equal `color`, in the order of `key`, then of rank.
    /// Collective; waits for the peers. A failure of a group is a failure of all groups that were
    /// split from one another. The result has the same options, and memory of its own.
    /// @param color at least 0
    /// @throws InvalidArgument; CommunicatorError
    [[nodiscard]] Communicator split(int color, int key) {
        return Communicator(collectives().split(color, key));
    }

    /// @brief Hashes the options that must be equal on all ranks, see `Communicator`: the order of
    /// sums.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return Hash().add(collectives().options().order).value();
    }

private:
    explicit Communicator(std::unique_ptr<detail::Collectives> collectives) noexcept
        : HostCommunicator(std::move(collectives)) {}
};
static_assert(zero::ExchangingCommunicator<Communicator>);

} // namespace ZERO_NAMESPACE::mpi
