#pragma once

#include "../core/host_device.hpp"

/// @brief Before a template that is marked ZERO_HOST_DEVICE, and calls functions that exist on one
/// of the sides alone, depending on its arguments: nvcc then warns of no call.
#if defined(__CUDACC__)
#define ZERO_NO_SIDE_CHECK _Pragma("nv_exec_check_disable")
#else
#define ZERO_NO_SIDE_CHECK
#endif
