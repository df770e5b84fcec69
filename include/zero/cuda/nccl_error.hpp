#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../core/source_location.hpp"

#include <string>

namespace ZERO_NAMESPACE::cuda {

/// @brief A function of NCCL failed, or a communicator reported an error of the network or of a
/// peer; `code()` is NCCL's.
class NcclError : public CommunicatorError {
public:
    explicit NcclError(std::string const& message, SourceLocation where = SourceLocation::current(),
                       int code = 0)
        : CommunicatorError(message, where, code) {}
};

/// @brief The library that was loaded does not go with the header that the program was compiled
/// with.
class NcclVersionMismatch : public NcclError {
public:
    explicit NcclVersionMismatch(std::string const& message,
                                 SourceLocation where = SourceLocation::current(), int code = 0)
        : NcclError(message, where, code) {}
};

/// @brief A variable that the launcher sets is missing or ill-formed, or does not fit this machine.
class LauncherError : public InvalidArgument {
public:
    explicit LauncherError(std::string const& message,
                           SourceLocation where = SourceLocation::current(), int code = 0)
        : InvalidArgument(message, where, code) {}
};

} // namespace ZERO_NAMESPACE::cuda
