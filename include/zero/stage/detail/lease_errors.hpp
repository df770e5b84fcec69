#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"

#include <cstddef>

/// The errors of `GradientScheduler` and `ParameterScheduler`.
namespace ZERO_NAMESPACE::detail {

/// @throws LateGradient: the reduction of the parameter's bucket was enqueued in this micro-step
[[noreturn, gnu::cold]] void throw_late_gradient(FlatLayout const& layout, std::size_t parameter,
                                                 std::size_t bucket, std::size_t rank);

/// @throws OutOfOrder: no gradient lease is free for a bucket of the unit
[[noreturn, gnu::cold]] void throw_no_gradient_lease(FlatLayout const& layout, std::size_t unit,
                                                     std::size_t rank);

/// @throws OutOfOrder: fewer parameter leases are free than the unit needs
/// @param missing leases that it needs
[[noreturn, gnu::cold]] void throw_no_parameter_lease(FlatLayout const& layout, std::size_t unit,
                                                      std::size_t rank, std::size_t missing,
                                                      std::size_t free);

/// @throws InvalidArgument: an adopted block cuts the parameter, so its gradient is not contiguous
[[noreturn, gnu::cold]] void throw_split_gradient(FlatLayout const& layout, std::size_t parameter);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "lease_errors.ipp"
#endif
