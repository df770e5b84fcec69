#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/shared_function.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief A callback `void(std::size_t begin, std::span<T> values)` that fills elements [begin,
/// begin + values.size()) of a parameter, or none. Copies share the callback.
/// @tparam T type of the parameters
template <class T>
using Initialiser = detail::SharedFunction<void, std::size_t, std::span<T>>;

} // namespace ZERO_NAMESPACE
