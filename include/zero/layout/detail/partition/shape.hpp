#pragma once

#include "../../../core/detail/namespace.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the product of a shape's sizes: 1 for no dimension. A product that overflows
/// becomes the largest integer, which no parameter has.
[[nodiscard]] inline std::size_t product_of(std::vector<std::size_t> const& shape) noexcept {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    std::size_t product = 1;
    for (std::size_t const size : shape) {
        if (size != 0 && product > most / size) {
            product = most;
        } else {
            product *= size;
        }
    }
    return product;
}

/// @brief Returns the elements of a parameter: as registered, or those of its shape.
[[nodiscard]] inline std::size_t elements_of(std::size_t elements,
                                             std::vector<std::size_t> const& shape) noexcept {
    return elements == 0 && !shape.empty() ? product_of(shape) : elements;
}

/// @brief Returns the rows of a parameter: as registered, or those of a shape of two dimensions.
[[nodiscard]] inline std::size_t rows_of(std::size_t rows,
                                         std::vector<std::size_t> const& shape) noexcept {
    return rows == 0 && shape.size() == 2 && shape[1] != 0 ? shape[0] : rows;
}

/// @brief Returns a text such as "[768, 3072]".
[[nodiscard]] inline std::string shape_text(std::vector<std::size_t> const& shape) {
    std::string text = "[";
    for (std::size_t const size : shape) {
        text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
    }
    return text + "]";
}

} // namespace ZERO_NAMESPACE::detail
