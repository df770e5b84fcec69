#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../current_memory.hpp"

#include <cstddef>
#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Requires that a parameter's memory lies where it was registered and has its size.
/// @param registered null pointers where no memory was registered
/// @throws InvalidArgument naming the parameter, both addresses, the rank and the remedy
void require_same_memory(ParameterSpec const& spec, CurrentMemory const& registered,
                         CurrentMemory const& now, std::size_t rank);

/// @brief Requires that a list of registrations names the parameter at this place.
/// @throws InvalidArgument
[[gnu::cold]] void require_same_name(ParameterSpec const& registered, std::string const& name,
                                     std::size_t index, std::size_t rank);

/// @brief Requires that a list of registrations has as many parameters as the engine.
/// @throws InvalidArgument
[[gnu::cold]] void require_same_count(std::size_t registered, std::size_t now, std::size_t rank);

/// @brief Requires that a registration names no memory where the engine uses its own.
/// @throws InvalidArgument
[[gnu::cold]] void require_no_other_memory(ParameterSpec const& spec,
                                           CurrentMemory const& registered,
                                           CurrentMemory const& now, std::size_t rank);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "require_same_memory.ipp"
#endif
