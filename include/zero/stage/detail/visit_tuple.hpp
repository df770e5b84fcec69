#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `visit` with the element of a tuple that is chosen at run time.
template <std::size_t I = 0, class Tuple, class Visitor>
decltype(auto) visit_at(Tuple& tuple, std::size_t index, Visitor&& visit) {
    if constexpr (I + 1 < std::tuple_size_v<std::remove_cv_t<Tuple>>) {
        if (index != I) {
            return visit_at<I + 1>(tuple, index, visit);
        }
    }
    return visit(std::get<I>(tuple));
}

/// @brief Calls `visit` with every element of a tuple.
template <class Tuple, class Visitor>
void visit_all(Tuple& tuple, Visitor&& visit) {
    std::apply([&](auto&... element) { (visit(element), ...); }, tuple);
}

} // namespace ZERO_NAMESPACE::detail
