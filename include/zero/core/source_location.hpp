#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief Where an error happened. The standard's own type is missing in clang 14 with this
/// standard library.
struct SourceLocation {
    char const* file = "";     ///< as the compiler names it
    int line = 0;              ///< from 1
    char const* function = ""; ///< its name without arguments

    /// @brief Where this is called; as a default argument, where the function with that argument is
    /// called.
    static constexpr SourceLocation current(char const* file = __builtin_FILE(),
                                            int line = __builtin_LINE(),
                                            char const* function = __builtin_FUNCTION()) noexcept {
        return {file, line, function};
    }
};

} // namespace ZERO_NAMESPACE
