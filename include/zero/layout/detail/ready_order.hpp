#pragma once

#include "../../core/detail/namespace.hpp"
#include "../parameter_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns for each parameter a number that grows with the time at which its gradient
/// becomes complete, equal for parameters that become complete with the same unit.
/// @param unit_order as for `ready_order`
std::vector<std::uint64_t> complete_times(std::span<ParameterSpec const> parameters,
                                          std::span<std::size_t const> unit_order);

/// @brief Returns the indices of all parameters in gradient-ready order: the order in which their
/// gradients become complete. O(n log n).
///
/// The gradient of a parameter is complete when the last of its units has finished its backward
/// pass. Parameters that become complete with the same unit stay together, in reverse registration
/// order.
/// @param unit_order the order in which units finish their backward pass; empty: by descending
/// number, as `FlatLayout::unit_order` then says
std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                     std::span<std::size_t const> unit_order);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "ready_order.ipp"
#endif
