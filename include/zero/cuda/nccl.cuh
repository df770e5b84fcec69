#pragma once

#include "backend.cuh"
#include "nccl.hpp"

namespace zero::cuda {

/// @brief The communicator of a CUDA program: one rank per device, over NCCL.
using NcclCommunicator = NcclCommunicatorOn<Backend>;
static_assert(Communicator<NcclCommunicator>);

} // namespace zero::cuda
