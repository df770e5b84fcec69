#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/storage.hpp"
#include "../any_parameter.hpp"

#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Refuses null pointers with a size, memory that would be ignored, misaligned memory, and
/// memory that overlaps that of another parameter. @throws InvalidArgument naming the parameters
/// and the remedy
[[gnu::cold]] void validate_memory(std::span<AnyParameter const> parameters, Storage storage,
                                   int stage);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "validate_memory.ipp"
#endif
