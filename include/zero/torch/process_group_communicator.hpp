#pragma once

#include "../comm/communicator.hpp"
#include "../comm/detail/host_communicator.hpp"
#include "../core/detail/namespace.hpp"
#include "detail/process_group_collectives.hpp"
#include "process_group_options.hpp"

#include <c10/util/intrusive_ptr.h>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

namespace ZERO_NAMESPACE::torch {

/// @brief A communicator between processes over a process group of LibTorch, for memory on the
/// host. One object per rank.
///
/// It needs `alltoall_base`, `allgather`, `broadcast` and `allreduce` of the group's backend for
/// tensors on the host, which gloo provides. A collective is one command on the given queue.
/// The call itself waits only while 512 collectives of this communicator (fewer in large groups)
/// are unfinished. Sums are formed in float in rank order and rounded once: the bits are those of
/// `Loopback`. Buckets of any size are cut into messages of at most a quarter of
/// `ProcessGroupOptions::scratch_bytes`, which are copied through buffers of the communicator. So a
/// transfer that never ends refers to no memory of the caller.
///
/// Ranks of one host read one another's memory in place, if it comes from `shared_memory`: a sum
/// reads what all ranks send, and a gather copies once.
///
/// While it exists, nothing else may use the process group, because the backend matches the
/// collectives of the ranks by their order.
///
/// Failures: a rank whose peers do not arrive within the time-out throws `TimedOut`, which names
/// the collective and the ranks that are missing. Ranks that call different collectives throw
/// `CollectiveMismatch`. Any failure of a rank reaches all others as `Aborted` with its cause,
/// through the store. A rank that was killed is noticed by the backend, or, where it shares memory,
/// because its process has ended; the others throw `Aborted`. Afterwards every call throws.
///
/// The destructor waits until the enqueued commands have run, and tells the peers that this rank
/// has left.
class ProcessGroupCommunicator
    : public zero::detail::HostCommunicator<detail::ProcessGroupCollectives> {
public:
    /// @brief Joins the ranks of a process group. Collective; waits for the peers.
    /// @param group for instance `ProcessGroup::getBackend(c10::DeviceType::CPU)`
    /// @throws InvalidArgument; LayoutMismatch if options differ; CommunicatorError
    explicit ProcessGroupCommunicator(c10::intrusive_ptr<c10d::Backend> group,
                                      ProcessGroupOptions const& options = {})
        : HostCommunicator(
            std::make_unique<detail::ProcessGroupCollectives>(std::move(group), options)) {
        collectives().join();
    }
};
static_assert(zero::ExchangingCommunicator<ProcessGroupCommunicator>);

} // namespace ZERO_NAMESPACE::torch
