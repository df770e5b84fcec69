#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Throws unless `holds`. The message names the policy, the option, its value and the range.
/// @throws InvalidArgument
void check_option(bool holds, char const* policy, char const* field, double value,
                  char const* range);

/// @brief Throws unless `value` is 0 or a positive finite float. The caller may choose 0, but a
/// positive value must not become 0 when it is rounded to float.
/// @throws InvalidArgument
void check_epsilon(char const* policy, double value);

/// @brief True for a decay rate: 0 <= value < 1, even when rounded to float.
inline bool is_rate(double value) noexcept {
    return value >= 0.0 && static_cast<float>(value) < 1.0F;
}

/// @brief Throws unless the options that Adam, AdamW and Lamb share are in range.
/// @param policy the optimizer, for the message
/// @throws InvalidArgument naming the first option that is NaN or out of range
void validate_adam(char const* policy, double beta1, double beta2, double epsilon,
                   double weight_decay);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "check_option.ipp"
#endif
