#pragma once

/// @file
/// @brief Include it to compose a stage on a device with `Offload<To<HostMemory, kinds...>>`.

#include "../policy/host_memory.hpp"
#include "detail/optimizer/host_update.hpp"
#include "zero_stage.hpp"
