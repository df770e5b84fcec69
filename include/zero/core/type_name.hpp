#pragma once

#include "detail/light_std.hpp"
#include "detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief Returns the name of a type as the compiler prints it, without the namespace `zero`. For
/// logs and messages only: compilers differ.
template <class T>
[[nodiscard]] std::string type_name() {
    // "... [with T = NAME; ...]" (g++, nvcc) or "... [T = NAME]" (clang++)
    std::string_view text = __PRETTY_FUNCTION__;
    text.remove_prefix(text.find("T = ") + 4);
    std::string name(text.substr(0, detail::smaller(text.find(';'), text.rfind(']'))));
    for (std::size_t at = name.find("zero::"); at != std::string::npos; at = name.find("zero::")) {
        name.erase(at, 6);
    }
    return name;
}

} // namespace ZERO_NAMESPACE
