#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../launch/launcher_error.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief A function of NCCL failed, or a communicator reported an error of the network or of a
/// peer.
///
/// `code()` is the ncclResult_t. `cuda/detail/nccl/nccl_flights.hpp` turns codes of NCCL into this
/// error; `BasicNcclCommunicator` throws it, after it has aborted the communicator. Other failures
/// of a communicator are `TimedOut` (a peer did not arrive), `Aborted` (the group was aborted
/// earlier) and `CommunicatorError` (a call of the CUDA runtime failed), all in core/error.hpp.
class NcclError : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

/// @brief The NCCL library that was loaded does not match the header that the program was compiled
/// with.
class NcclVersionMismatch : public NcclError {
public:
    using NcclError::NcclError;
};

/// @brief See `launch::LauncherError`.
using launch::LauncherError;

} // namespace ZERO_NAMESPACE::cuda
