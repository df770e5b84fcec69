#pragma once

/// @file
/// @brief Tags for the decisions that a stage delegates to policies. A policy names its category
/// with `using policy_category = ...;`. A stage has at most one policy per category.

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

struct ParametersCategory {};
struct PartitionerCategory {};
struct BucketerCategory {};
struct CommunicatorCategory {};
struct LossScalerCategory {};
struct MasterWeightsCategory {};
struct OptimizerCategory {};
struct OptimizerStateCategory {};
struct GradientReductionCategory {};
struct OffloadCategory {};
struct WireCategory {};

} // namespace ZERO_NAMESPACE
