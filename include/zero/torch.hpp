#pragma once

/// @file
/// @brief Everything for LibTorch. It needs LibTorch 2.4 or later, so `zero.hpp` does not include
/// it.

#if __has_include(<torch/csrc/distributed/c10d/Backend.hpp>) // a LibTorch with process groups
#include "torch/process_group_communicator.hpp"
#endif
#include "torch/replicated.hpp"
#include "torch/sharded.hpp"
#include "torch/unit.hpp"
#include "zero.hpp"
