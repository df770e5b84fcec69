#pragma once

#include "offsets_in_block.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/detail/order_by.hpp"

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
            bool const begins_inside = begin >= block_begin && offset < elements;
            throw_error<InvalidArgument>(
                {"zero: parameter '", parameter.spec.name, "' does not lie inside adopted_block: ",
                 (begins_inside
                      ? text({"it begins at element ", offset, " and has ", parameter.spec.elements,
                              " elements, but the block has ", elements})
                      : text({"it begins at ", hexadecimal(parameter.data), ", and the block of ",
                              elements, " elements at ", hexadecimal(block)})),
                 "; give the block that holds all parameters, or correct the sizes."});
        }
        offsets.push_back(offset);
    }
    return offsets;
}

ZERO_COLD_INLINE std::string uncovered_text(FlatLayout const& layout,
                                            std::span<std::size_t const> offsets,
                                            std::size_t elements) {
    std::vector<std::uint64_t> const begins(offsets.begin(), offsets.end());
    std::size_t covered = 0;
    std::size_t first = 0;
    for (std::size_t const index : order_by(begins)) {
        std::size_t const count = layout.parameter(index).elements;
        covered += count;
        first += first == offsets[index] ? count : 0;
    }
    return covered == elements ? std::string()
                               : text({elements - covered, " of the ", elements,
                                       " elements of adopted_block (they lie in no parameter; the "
                                       "first is element ",
                                       first, ')'});
}

} // namespace ZERO_NAMESPACE::detail
