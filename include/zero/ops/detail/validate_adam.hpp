#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Throws unless the options that Adam, AdamW and Lamb share are in range.
/// @param policy the optimizer, for the message
/// @throws InvalidArgument names the first option that is NaN or out of range
void validate_adam(char const* policy, double beta1, double beta2, double epsilon,
                   double weight_decay);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "validate_adam.ipp"
#endif
