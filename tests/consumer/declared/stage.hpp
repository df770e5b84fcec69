#pragma once

#include <zero/stage/declare_stage.hpp>
#include <zero/zero.hpp>

using Zero = zero::ZeroStage<2, zero::Lion>;
ZERO_DECLARE_STAGE(Zero);
