#pragma once

#include "../source_location.hpp"
#include "namespace.hpp"
#include "text.hpp"

#include <initializer_list>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws an error whose message is the pieces in a row:
/// `throw_error<InvalidArgument>({"zero: unit ", unit, " does not exist."})`.
///
/// In place of a throw-expression, which would compile strings and their clean-up at every place.
template <class E>
[[noreturn, gnu::noinline, gnu::cold]] void
throw_error(std::initializer_list<TextPiece> pieces,
            SourceLocation where = SourceLocation::current()) {
    throw E(text(pieces), where);
}

} // namespace ZERO_NAMESPACE::detail
