#include <zero/comm/detail/collective_call.ipp>
#include <zero/comm/detail/group_place.ipp>
#include <zero/comm/detail/groups.ipp>
#include <zero/comm/detail/instantiations.ipp>
#include <zero/comm/detail/loopback_group.ipp>
#include <zero/comm/detail/rendezvous.ipp>
#include <zero/comm/detail/run_threads.ipp>
