#pragma once

#include "../core/detail/namespace.hpp"
#include "gradient_reduction.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Returns the divisor of a payload before it is sent. It keeps a sum over W ranks in the
/// range of the communication type.
/// @throws InvalidArgument if the option or its inverse is not a positive normal number.
float predivide_factor(GradientReductionOptions const& options, std::size_t world,
                       bool communicates_float16);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/predivide_factor.ipp"
#endif
