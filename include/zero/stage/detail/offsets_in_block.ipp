#pragma once

#include "offsets_in_block.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::vector<std::size_t> offsets_in_block(std::span<AnyParameter const> parameters,
                                                           void const* block, std::size_t elements,
                                                           std::size_t element_bytes) {
    auto const block_begin = reinterpret_cast<std::uintptr_t>(block);
    std::vector<std::size_t> offsets;
    for (auto const& parameter : parameters) {
        auto const begin = reinterpret_cast<std::uintptr_t>(parameter.data);
        std::size_t const offset =
            parameter.spec.elements == 0 ? 0 : (begin - block_begin) / element_bytes;
        bool const is_inside = begin >= block_begin && offset <= elements
                               && parameter.spec.elements <= elements - offset;
        if (parameter.spec.elements != 0 && !is_inside) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name,
                 "' does not lie inside adopted_block; give the block that holds all parameters."});
        }
        offsets.push_back(offset);
    }
    return offsets;
}

} // namespace ZERO_NAMESPACE::detail
