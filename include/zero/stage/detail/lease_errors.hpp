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

/// @throws OutOfOrder: there is no room for the gathered buckets of the unit
[[noreturn, gnu::cold]] void throw_no_parameter_lease(FlatLayout const& layout, std::size_t unit,
                                                      std::size_t rank);

/// @throws OutOfOrder: there is no room for a bucket that the engine leases by itself. The
/// schedulers keep that room free, so this reports a bug of the library.
[[noreturn, gnu::cold]] void throw_no_room(FlatLayout const& layout, std::size_t bucket,
                                           std::size_t rank);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "lease_errors.ipp"
#endif
