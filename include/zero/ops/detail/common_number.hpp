#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::ops::detail {

/// @brief The number type of an operation with these operands: the pack if there is one, else
/// float. A `float` operand is broadcast to every lane of a pack.
template <class A, class... Others>
struct Common {
    using type = A;
};
template <class... Others>
    requires(sizeof...(Others) > 0)
struct Common<float, Others...> : Common<Others...> {};

template <class... Operands>
using CommonNumber = typename Common<Operands...>::type;

} // namespace ZERO_NAMESPACE::ops::detail
