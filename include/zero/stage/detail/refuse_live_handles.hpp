#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Says why an engine cannot end while handles live, for `end_with_live_handles`.
[[gnu::cold]] std::string live_handles_text(std::size_t weights, std::size_t gradients,
                                            std::size_t rank);

/// @brief Prints the text on stderr and ends the program, because a handle would use freed memory.
[[noreturn, gnu::cold]] void end_with_live_handles(std::string const& text) noexcept;

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "refuse_live_handles.ipp"
#endif
