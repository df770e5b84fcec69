#pragma once

/// @file
/// @brief Include it to compose a stage with `Offload<To<FileTier, kinds...>>`. It needs xxhash.h,
/// which the CMake target `zero::tier` finds.

#include "../policy/offload.hpp"
#include "../tier/file_tier.hpp"
#include "detail/optimizer/delayed_update.hpp"
#include "detail/optimizer/offload_pipeline.hpp"
#include "zero_stage.hpp"
