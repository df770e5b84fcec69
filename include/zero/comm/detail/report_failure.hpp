#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `abort(cause)` with the first line of the current exception and the rank. Called
/// inside a catch block.
/// @param abort does not throw
void report_failure(std::size_t rank, FunctionRef<std::string_view> abort) noexcept;

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "report_failure.ipp"
#endif
