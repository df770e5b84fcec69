#pragma once

#include "machine.hpp"

namespace zero::test::ptx {

/// Runs a launch to its end. Findings go to `Findings`.
/// @param arguments one pointer for each parameter
void launch(Kernel const& kernel, Dim grid, Dim block, void* const* arguments,
            u32 dynamic_shared_bytes = 0);

} // namespace zero::test::ptx
