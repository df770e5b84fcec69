#pragma once

#include "host_device.hpp"
#include "model.hpp"

namespace gpt {

/// @brief The model on the host.
template <class Real = float>
using Model = ModelOn<HostDevice<Real>>;

} // namespace gpt
