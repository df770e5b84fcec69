#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the W + 1 offsets that give every rank the same number of elements.
[[gnu::cold]] std::vector<std::size_t> uniform_cuts(std::size_t world, std::size_t elements);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "uniform_cuts.ipp"
#endif
