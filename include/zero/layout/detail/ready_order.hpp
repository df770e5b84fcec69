#pragma once

#include "../../core/detail/namespace.hpp"
#include "../parameter_spec.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the indices of all parameters in gradient-ready order: the order in which their
/// gradients become complete. O(n log n).
///
/// The gradient of a parameter is complete when the last of its units has finished its backward
/// pass. Parameters that become complete with the same unit stay together, in reverse registration
/// order.
/// @param unit_order the order in which units finish their backward pass; empty: parameters become
/// complete in reverse registration order
std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                     std::span<std::size_t const> unit_order);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "ready_order.ipp"
#endif
