#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/shared_function.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Where the caller's memory of one parameter lies now, to be compared with its
/// registration.
struct CurrentMemory {
    void const* data = nullptr;     ///< address of its values; ignored if none was registered
    void const* gradient = nullptr; ///< address of its gradient; ignored if none was registered
    std::size_t elements = 0;       ///< current size of the parameter
};

/// @brief A callback `CurrentMemory(std::size_t parameter)`, or none; the argument is the
/// registration index. For `StageOptions::current_memory`.
using CurrentMemoryOf = detail::SharedFunction<CurrentMemory, std::size_t>;

} // namespace ZERO_NAMESPACE
