#pragma once

#include <span>
#include <vector>

namespace zero::detail {

/// @brief A view of all elements. Said by name, because the conversion instantiates the concepts of ranges for every type of element.
template <class T>
[[nodiscard]] std::span<T const> as_span(std::vector<T> const& values) noexcept {
    return {values.data(), values.size()};
}

} // namespace zero::detail
