#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../any_parameter.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Marks all gradients as `GradientMemory::block` if each lies as far from one address as
/// its parameter from the start of the adopted block; otherwise changes nothing.
/// @param offsets offset of each parameter in the adopted block, in elements
/// @param element_bytes bytes of a gradient element
[[gnu::cold]] void find_gradient_block(std::vector<ParameterSpec>& specs,
                                       std::span<AnyParameter const> parameters,
                                       std::span<std::size_t const> offsets,
                                       std::size_t element_bytes);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "find_gradient_block.ipp"
#endif
