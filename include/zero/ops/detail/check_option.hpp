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

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "check_option.ipp"
#endif
