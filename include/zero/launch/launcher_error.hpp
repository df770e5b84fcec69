#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"

namespace ZERO_NAMESPACE::launch {

/// @brief An environment variable that a launcher sets is missing, malformed, contradicts another
/// one or does not fit this machine. The message lists all variables that were looked for.
class LauncherError : public InvalidArgument {
public:
    using InvalidArgument::InvalidArgument;
};

} // namespace ZERO_NAMESPACE::launch
