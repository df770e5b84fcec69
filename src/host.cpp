#include <zero/host/detail/host_backend.ipp>
#include <zero/host/detail/host_backend_instantiations.hpp>
#include <zero/host/detail/instruction_set.ipp>
#include <zero/host/detail/kernels.ipp>
#include <zero/host/detail/queue.ipp>
#include <zero/host/detail/threaded_queue.ipp>

namespace ZERO_NAMESPACE::host {
ZERO_HOST_INSTANTIATE_KERNELS()
} // namespace ZERO_NAMESPACE::host

namespace ZERO_NAMESPACE {
ZERO_HOST_INSTANTIATE_BACKEND()
} // namespace ZERO_NAMESPACE
