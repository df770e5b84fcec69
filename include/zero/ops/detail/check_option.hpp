#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws unless `value` is 0 or a positive finite float. The caller may choose 0, but a
/// positive value must not become 0 when it is rounded to float.
/// @throws InvalidArgument
void check_epsilon(char const* policy, double value);

/// @brief Throws unless `value` is a decay rate: 0 <= value < 1, even when rounded to float.
/// @throws InvalidArgument
void check_rate(char const* policy, char const* field, double value);

/// @brief Throws unless `value` is a finite float of at least 0. @throws InvalidArgument
void check_non_negative(char const* policy, char const* field, double value);

/// @brief Throws unless an average decays in [0, 1] and begins at a step. @throws InvalidArgument
void check_average(char const* policy, double decay, std::uint64_t begin);

/// @brief Throws unless the options that Adam, AdamW and Lamb share are in range.
/// @param policy the optimizer, for the message
/// @throws InvalidArgument naming the first option that is NaN or out of range
void validate_adam(char const* policy, double beta1, double beta2, double epsilon,
                   double weight_decay);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "check_option.ipp"
#endif
