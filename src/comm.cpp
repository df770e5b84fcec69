#include <zero/comm/detail/collective_call.ipp>
#include <zero/comm/detail/group_place.ipp>
#include <zero/comm/detail/groups.ipp>
#include <zero/comm/detail/loopback_group.ipp>
#include <zero/comm/detail/loopback_instantiations.hpp>
#include <zero/comm/detail/optional_operations.hpp>
#include <zero/comm/detail/rendezvous.ipp>
#include <zero/comm/detail/run_threads.ipp>
#include <zero/comm/detail/shared_memory.ipp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/run_ranks.hpp>

namespace ZERO_NAMESPACE {
ZERO_COMM_INSTANTIATE_LOOPBACK()
template void detail::run_group(int, LoopbackOptions const&, FunctionRef<LoopbackCommunicator&>);
} // namespace ZERO_NAMESPACE
