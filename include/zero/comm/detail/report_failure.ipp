#pragma once

#include "report_failure.hpp"

#include "../../core/detail/text.hpp"

#include <exception>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void report_failure(std::size_t rank,
                                     FunctionRef<std::string_view> abort) noexcept {
    try {
        try {
            throw;
        } catch (std::exception const& error) {
            abort(text({"rank ", rank, ": ", first_line(error.what())}));
        } catch (...) {
            abort(text({"rank ", rank, " threw an exception that is not a std::exception"}));
        }
    } catch (...) { // there was no memory for a text
        abort("a rank failed");
    }
}

ZERO_COLD_INLINE std::string finished_text(std::size_t rank) {
    return text(
        {"rank ", rank, " finished and left the group; every rank must make the same calls"});
}

} // namespace ZERO_NAMESPACE::detail
