#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../any_parameter.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the offset of each parameter in the adopted block, in elements.
/// @param elements length of the block, @param element_bytes size of each
/// @throws InvalidArgument naming a parameter that lies outside
[[gnu::cold]] std::vector<std::size_t> offsets_in_block(std::span<AnyParameter const> parameters,
                                                        void const* block, std::size_t elements,
                                                        std::size_t element_bytes);

/// @brief Returns how many elements of the adopted block lie in no parameter, and the first of
/// them; empty if there are none. Gaps are allowed, but a wrong size makes one too.
/// @param offsets the result of `offsets_in_block`
[[gnu::cold]] std::string uncovered_text(FlatLayout const& layout,
                                         std::span<std::size_t const> offsets,
                                         std::size_t elements);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "offsets_in_block.ipp"
#endif
