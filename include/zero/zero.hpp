#pragma once

#include "core/detail/require_cxx20.hpp"

/// @file
/// @brief The umbrella header: the stages, policies, optimizers, loopback and host queues.
/// Checkpoints, timelines (`comm/timed.hpp`), tiles (`stage/tiles.hpp`), `comm/hierarchical.hpp`,
/// `launch/`, the communication model of `layout/`, MPI, LibTorch and CUDA have headers of their
/// own.

#include "comm/checked.hpp"
#include "comm/loopback.hpp"
#include "comm/recording.hpp"
#include "comm/run_ranks.hpp"
#include "comm/sum_over_ranks.hpp"
#include "core/version.hpp"
#include "host/inline_queue.hpp"
#include "layout/balanced_partitioner.hpp"
#include "layout/communication_model.hpp"
#include "layout/contiguous_partitioner.hpp"
#include "layout/dealt_group_partitioner.hpp"
#include "layout/lease_share.hpp"
#include "layout/per_tensor_partitioner.hpp"
#include "layout/round_robin_partitioner.hpp"
#include "layout/shard_map.hpp"
#include "layout/size_capped_bucketer.hpp"
#include "layout/whole_group_partitioner.hpp"
#include "ops/adagrad.hpp"
#include "ops/adam.hpp"
#include "ops/adamw.hpp"
#include "ops/lamb.hpp"
#include "ops/lion.hpp"
#include "ops/muon.hpp"
#include "ops/sgd.hpp"
#include "policy/dynamic_loss_scaler.hpp"
#include "policy/gradient_reduction.hpp"
#include "policy/loss_scaler_presets.hpp"
#include "policy/master_weights.hpp"
#include "policy/no_loss_scaler.hpp"
#include "policy/optimizer_state.hpp"
#include "policy/parameters.hpp"
#include "policy/static_loss_scaler.hpp"
#include "stage/describe.hpp"
#include "stage/register_block.hpp"
#include "stage/with_stage.hpp"
#include "stage/zero_stage.hpp"
