#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief A function of NCCL failed, or a communicator reported an error of the network or of a
/// peer; `code()` is NCCL's.
class NcclError : public CommunicatorError {
public:
    using CommunicatorError::CommunicatorError;
};

/// @brief The library that was loaded does not go with the header that the program was compiled
/// with.
class NcclVersionMismatch : public NcclError {
public:
    using NcclError::NcclError;
};

/// @brief A variable that the launcher sets is missing or ill-formed, or does not fit this machine.
class LauncherError : public InvalidArgument {
public:
    using InvalidArgument::InvalidArgument;
};

} // namespace ZERO_NAMESPACE::cuda
