#pragma once

/// @file
/// @brief Everything that needs neither CUDA nor MPI.

#include "comm/checked.hpp"
#include "comm/loopback.hpp"
#include "comm/recording.hpp"
#include "comm/run_ranks.hpp"
#include "core/version.hpp"
#include "layout/traffic.hpp"
#include "ops/adamw.hpp"
#include "ops/sgd.hpp"
#include "policy/loss_scaler_presets.hpp"
#include "stage/with_stage.hpp"
#include "stage/zero_stage.hpp"
