#pragma once

#include "find_gradient_block.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void find_gradient_block(std::vector<ParameterSpec>& specs,
                                          std::span<AnyParameter const> parameters,
                                          std::span<std::size_t const> offsets,
                                          std::size_t element_bytes) {
    auto const is_sent = [&](std::size_t index) {
        return specs[index].trainable && specs[index].elements != 0;
    };
    std::uintptr_t block = 0; // address of the gradient at offset 0
    for (std::size_t index = 0; index < specs.size(); ++index) {
        auto const gradient = reinterpret_cast<std::uintptr_t>(parameters[index].gradient);
        std::uintptr_t const begin = gradient - offsets[index] * element_bytes;
        block = block == 0 && is_sent(index) ? begin : block;
        if (is_sent(index) && (gradient == 0 || begin != block)) {
            return;
        }
    }
    for (std::size_t index = 0; index < specs.size(); ++index) {
        specs[index].gradient = is_sent(index) ? GradientMemory::block : specs[index].gradient;
    }
}

} // namespace ZERO_NAMESPACE::detail
