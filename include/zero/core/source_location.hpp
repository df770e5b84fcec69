#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief The place of an error in the source. Replaces std::source_location, which clang 14 lacks
/// with libstdc++.
struct SourceLocation {
    char const* file = "";     ///< file name as the compiler prints it
    int line = 0;              ///< line number, from 1
    char const* function = ""; ///< function name without arguments

    /// @brief The place of the call. As a default argument, it is the place where the function with
    /// that argument is called.
    static constexpr SourceLocation current(char const* file = __builtin_FILE(),
                                            int line = __builtin_LINE(),
                                            char const* function = __builtin_FUNCTION()) noexcept {
        return {file, line, function};
    }
};

} // namespace ZERO_NAMESPACE
