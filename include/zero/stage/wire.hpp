#pragma once

/// @file
/// @brief Include it to compose a stage with `Wire<codec>`.

#include "../host/code_blocks.hpp"
#include "../policy/wire.hpp"
#include "detail/gradients/encoded_gradients.hpp"
#include "detail/parameters/encoded_weights.hpp"
#include "zero_stage.hpp"
