#pragma once

/// @file
/// @brief Defines the host templates that the compiled library contains. Included by its source
/// only.

#include "host_backend.ipp"
#include "host_backend_instantiations.hpp"
#include "kernels.ipp"

namespace ZERO_NAMESPACE::host {
ZERO_HOST_INSTANTIATE_KERNELS()
} // namespace ZERO_NAMESPACE::host

namespace ZERO_NAMESPACE {
ZERO_HOST_INSTANTIATE_BACKEND()
} // namespace ZERO_NAMESPACE
