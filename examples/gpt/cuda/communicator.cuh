#pragma once

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/cuda/backend.cuh>
#ifdef GPT_HAS_NCCL
#include <zero/cuda/nccl.cuh>
#endif

namespace gpt {

/// @brief A communicator of threads on one device or of processes over NCCL.
#ifdef GPT_HAS_NCCL
using CudaCommunicator =
    zero::AnyCommunicator<zero::Loopback<zero::cuda::Backend>, zero::cuda::NcclCommunicator>;
#else
using CudaCommunicator = zero::AnyCommunicator<zero::Loopback<zero::cuda::Backend>>;
#endif
static_assert(zero::Communicator<CudaCommunicator>);

} // namespace gpt
