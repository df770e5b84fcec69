#pragma once

#include "core/language.hpp"

/// @file
/// @brief Everything that needs no CUDA, but for `host/delaying_queue.hpp`, which is for tests.

#include "comm/checked.hpp"
#include "comm/loopback.hpp"
#include "comm/recording.hpp"
#include "comm/run_ranks.hpp"
#include "core/version.hpp"
#include "layout/balanced_partitioner.hpp"
#include "layout/per_tensor_partitioner.hpp"
#include "layout/shard_map.hpp"
#include "layout/traffic.hpp"
#include "layout/waste_searching_bucketer.hpp"
#include "layout/whole_group_partitioner.hpp"
#include "ops/adagrad.hpp"
#include "ops/adam.hpp"
#include "ops/adamw.hpp"
#include "ops/lamb.hpp"
#include "ops/lion.hpp"
#include "ops/muon.hpp"
#include "ops/sgd.hpp"
#include "policy/loss_scaler_presets.hpp"
#include "stage/describe.hpp"
#include "stage/with_stage.hpp"
#include "stage/zero_stage.hpp"
