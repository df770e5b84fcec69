#pragma once

#include "../core/detail/namespace.hpp"
#include "nccl_library.hpp"
#include "nccl_system.hpp"

namespace ZERO_NAMESPACE::cuda {

/// @brief The two together; both outlive every communicator made with them.
struct NcclInterface {
    NcclLibrary* nccl = nullptr;  ///< never null in what starts a communicator
    NcclSystem* system = nullptr; ///< the same
};

} // namespace ZERO_NAMESPACE::cuda
