#pragma once

#include "../core/detail/namespace.hpp"
#include "backend.cuh"
#include "nccl.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief The communicator of CUDA programs: one rank per device, over NCCL.
using NcclCommunicator = NcclCommunicatorOn<Backend>;
static_assert(Communicator<NcclCommunicator>);

} // namespace ZERO_NAMESPACE::cuda
