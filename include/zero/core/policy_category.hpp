#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// A policy says what it decides through `using policy_category = ...;` with one of these.
struct ParametersCategory {};
struct PartitionerCategory {};
struct BucketerCategory {};
struct CommunicatorCategory {};
struct LossScalerCategory {};
struct MasterWeightsCategory {};
struct OptimizerCategory {};
struct OptimizerStateCategory {};
struct GradientReductionCategory {};

} // namespace ZERO_NAMESPACE
