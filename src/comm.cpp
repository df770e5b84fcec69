#include <zero/comm/detail/call_signature.ipp>
#include <zero/comm/detail/collective_call.ipp>
#include <zero/comm/detail/failures.ipp>
#include <zero/comm/detail/instantiations.ipp>
#include <zero/comm/detail/loopback_group.ipp>
#include <zero/comm/detail/rendezvous.ipp>
#include <zero/comm/detail/run_threads.ipp>
#include <zero/comm/detail/traffic_count.ipp>
