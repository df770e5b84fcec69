#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Transposes a rows x columns matrix: out[j][i] = in[i][j]. Works in blocks that fit into
/// the L1 cache.
inline void transpose(float* out, float const* in, std::size_t rows, std::size_t columns) noexcept {
    constexpr std::size_t block = 16;
    for (std::size_t top = 0; top < rows; top += block) {
        for (std::size_t left = 0; left < columns; left += block) {
            for (std::size_t i = top; i < smaller(top + block, rows); ++i) {
                for (std::size_t j = left; j < smaller(left + block, columns); ++j) {
                    out[j * rows + i] = in[i * columns + j];
                }
            }
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
