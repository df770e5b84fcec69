#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"

#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Calls `body.template operator()<stage>()`: turns a stage chosen at run time into a
/// template argument.
/// @throws InvalidArgument if `stage` is not 0, 1, 2 or 3
template <class Body>
decltype(auto) with_stage(int stage, Body&& body) {
    constexpr bool takes_stage = requires { std::forward<Body>(body).template operator()<0>(); };
    static_assert(takes_stage, "zero::with_stage: the body gets the stage as a template argument "
                               "and nothing else; write [&]<int N>() { ... }.");
    if constexpr (takes_stage) {
        switch (stage) {
        case 0: return std::forward<Body>(body).template operator()<0>();
        case 1: return std::forward<Body>(body).template operator()<1>();
        case 2: return std::forward<Body>(body).template operator()<2>();
        case 3: return std::forward<Body>(body).template operator()<3>();
        default:
            detail::throw_error<InvalidArgument>(
                {"zero: there is no stage ", stage, "; choose 0, 1, 2 or 3."});
        }
    }
}

} // namespace ZERO_NAMESPACE
