#pragma once

/// @file
/// @brief Defines the templates of the transports that the compiled library contains. Included by
/// its source only.

#include "../loopback.hpp"
#include "../run_ranks.hpp"
#include "loopback_instantiations.hpp"
#include "optional_operations.hpp"

namespace ZERO_NAMESPACE {
ZERO_COMM_INSTANTIATE_LOOPBACK()
template void detail::run_group(int, LoopbackOptions const&, FunctionRef<LoopbackCommunicator&>);
} // namespace ZERO_NAMESPACE
