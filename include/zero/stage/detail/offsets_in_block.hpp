#pragma once

#include "../../core/detail/namespace.hpp"
#include "../any_parameter.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the offset of each parameter in the adopted block, in elements.
/// @param elements length of the block, @param element_bytes size of each
/// @throws InvalidArgument naming a parameter that lies outside
[[gnu::cold]] std::vector<std::size_t> offsets_in_block(std::span<AnyParameter const> parameters,
                                                        void const* block, std::size_t elements,
                                                        std::size_t element_bytes);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "offsets_in_block.ipp"
#endif
