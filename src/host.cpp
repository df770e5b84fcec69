#include <zero/host/detail/copy_loop.ipp>
#include <zero/host/detail/host_backend.ipp>
#include <zero/host/detail/instantiations.ipp>
#include <zero/host/detail/instruction_set.ipp>
#include <zero/host/detail/kernels.ipp>
#include <zero/host/detail/queue.ipp>
#include <zero/host/detail/threaded_queue.ipp>
