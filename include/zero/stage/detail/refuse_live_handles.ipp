#pragma once

#include "refuse_live_handles.hpp"

#include "../../core/detail/text.hpp"

#include <cstdio>
#include <cstdlib>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::string live_handles_text(std::size_t weights, std::size_t gradients,
                                               std::size_t rank) {
    return text({"zero: the engine of rank ", rank, " ends while ", weights,
                 " handles of acquire() and ", gradients,
                 " of gradients() live, which would use freed memory; destroy handles before "
                 "their engine."});
}

ZERO_COLD_INLINE void end_with_live_handles(std::string const& text) noexcept {
    std::fputs(text.c_str(), stderr);
    std::fputc('\n', stderr);
    std::fflush(stderr);
    std::abort();
}

} // namespace ZERO_NAMESPACE::detail
