#pragma once

#include "../core/detail/namespace.hpp"
#include "nccl_library.hpp"
#include "nccl_system.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief The NCCL and the system that a communicator uses. Owns neither; both outlive every
/// communicator made with them.
struct NcclInterface {
    NcclLibrary* nccl = nullptr;  ///< must not be null when a communicator starts
    NcclSystem* system = nullptr; ///< must not be null when a communicator starts
};

} // namespace ZERO_NAMESPACE::cuda
