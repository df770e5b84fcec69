#pragma once

#include "../source_location.hpp"
#include "namespace.hpp"
#include "text.hpp"

#include <initializer_list>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws an `E` whose message concatenates the pieces:
/// `throw_error<InvalidArgument>({"zero: unit ", unit, " does not exist."})`.
///
/// Use it instead of a throw-expression, whose strings and their clean-up are compiled at every
/// throw.
template <class E>
[[noreturn, gnu::noinline, gnu::cold]] void
throw_error(std::initializer_list<TextPiece> pieces,
            SourceLocation where = SourceLocation::current()) {
    throw E(text(pieces), where);
}

} // namespace ZERO_NAMESPACE::detail
