#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../parameter_spec.hpp"
#include "bucketer_ref.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Divides parameters into buckets and calls `visit` with the members of each.
///
/// A bucket ends where the bucketer ends it, and before and after each tied parameter, which gets a
/// bucket of its own.
/// @param order parameter indices in the order in which buckets are filled
/// @param inside_units a bucket also ends where the unit changes
/// @throws InvalidArgument if the bucketer takes no parameter, or more than it was offered
void for_bucket_members(std::span<ParameterSpec const> parameters,
                        std::span<std::size_t const> order, bool inside_units, BucketerRef bucketer,
                        std::size_t element_bytes, FunctionRef<std::span<std::size_t const>> visit);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "for_bucket_members.ipp"
#endif
