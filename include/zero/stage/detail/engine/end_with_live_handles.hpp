#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Says why an engine cannot end while handles live, for `end_with_live_handles`.
[[gnu::cold]] inline std::string live_handles_text(std::size_t weights, std::size_t gradients,
                                                   std::size_t rank) {
    return text({"zero: the engine of rank ", rank, " ends while ", weights,
                 " handles of acquire() and ", gradients,
                 " of gradients() live, which would use freed memory; destroy handles before "
                 "their engine."});
}

/// @brief Prints the text on stderr and ends the program, because a handle would use freed memory.
[[noreturn, gnu::cold]] inline void end_with_live_handles(std::string const& text) noexcept {
    std::fputs(text.c_str(), stderr);
    std::fputc('\n', stderr);
    std::fflush(stderr);
    std::abort();
}

} // namespace ZERO_NAMESPACE::detail
