#pragma once

#include "detail/light_std.hpp"
#include "detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief The name of a type as this compiler writes it, without the namespace `zero`; for logs and
/// messages, not for comparisons.
template <class T>
[[nodiscard]] std::string type_name() {
    std::string_view text =
        __PRETTY_FUNCTION__; // "... [with T = NAME; ...]" (g++, nvcc) or "... [T = NAME]" (clang++)
    text.remove_prefix(text.find("T = ") + 4);
    std::string name(text.substr(0, detail::smaller(text.find(';'), text.rfind(']'))));
    for (std::size_t at = name.find("zero::"); at != std::string::npos; at = name.find("zero::")) {
        name.erase(at, 6);
    }
    return name;
}

} // namespace ZERO_NAMESPACE
