#pragma once

#include "../source_location.hpp"
#include "namespace.hpp"

#include <string>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief A message that remembers the line on which it became the argument of an exception.
///
/// The exceptions inherit one constructor with this parameter. (nvcc 13.0 fails with an internal
/// error if an inherited constructor itself has a defaulted SourceLocation.)
struct LocatedMessage {
    // NOLINTBEGIN(google-explicit-constructor): the conversion notes the line
    LocatedMessage(std::string message, SourceLocation place = SourceLocation::current())
        : text(std::move(message)), where(place) {}
    LocatedMessage(char const* message, SourceLocation place = SourceLocation::current())
        : text(message), where(place) {}
    // NOLINTEND(google-explicit-constructor)

    std::string text;
    SourceLocation where;
};

} // namespace ZERO_NAMESPACE::detail
