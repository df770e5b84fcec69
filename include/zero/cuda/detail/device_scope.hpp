#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_system.hpp"
#include "nccl_require_success.hpp"

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns the device of the calling thread. @throws CommunicatorError
inline int current_device(NcclSystem& system) {
    int device = 0;
    require_success(system, system.current_device(device), "cudaGetDevice");
    return device;
}

/// @brief Restores the current device at the end of a scope.
class DeviceScope {
public:
    explicit DeviceScope(NcclSystem& system) : _system(&system), _device(current_device(system)) {}
    DeviceScope(DeviceScope const&) = delete;
    DeviceScope& operator=(DeviceScope const&) = delete;
    ~DeviceScope() { _system->set_device(_device); }

private:
    NcclSystem* _system;
    int _device;
};

} // namespace ZERO_NAMESPACE::cuda::detail
