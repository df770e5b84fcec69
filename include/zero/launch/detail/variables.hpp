#pragma once

#include "../../core/detail/namespace.hpp"
#include "../variable_lookup.hpp"

#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::launch::detail {

/// @brief The variables in which launchers describe a process. Used by `environment` and by the
/// start of NCCL.
class Variables {
public:
    Variables(VariableLookup lookup, void* context) noexcept : _lookup(lookup), _context(context) {}

    /// @brief Returns the value, or null.
    [[nodiscard]] char const* find(char const* name) const noexcept {
        return _lookup(_context, name);
    }

    /// @brief Returns the value. @param needed its valid values, for messages. @throws
    /// LauncherError
    [[nodiscard]] std::string text(char const* name, std::string_view needed) const;

    /// @brief Parses a variable that must consist of digits only: no sign, no blanks, nothing after
    /// them. @throws LauncherError
    [[nodiscard]] int integer(char const* name, std::string_view needed, int least, int most) const;

    /// @brief Throws for one variable. @param found its state, such as "is missing". @throws
    /// LauncherError always
    [[noreturn]] static void refuse(char const* name, std::string_view found,
                                    std::string_view needed);

private:
    VariableLookup _lookup;
    void* _context;
};

} // namespace ZERO_NAMESPACE::launch::detail

#if !defined(ZERO_COMPILED)
#include "variables.ipp"
#endif
