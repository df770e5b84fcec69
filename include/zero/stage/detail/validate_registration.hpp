#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../../layout/storage.hpp"
#include "../any_parameter.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Checks the parameter groups, and whether the composition can use an adopted block.
/// @param groups entries of `options.groups`
/// @param needs_whole whether the optimizer needs whole parameters
/// @param serves_adopted whether the partitioner serves an adopted block
/// @param types number of parameter types
/// @throws InvalidArgument naming the parameter or the group, and the remedy
[[gnu::cold]] void validate_registration(std::span<AnyParameter const> parameters,
                                         std::size_t groups, Storage storage, bool needs_whole,
                                         bool serves_adopted, std::size_t types);

/// @brief Decides for an optimizer with a rule for matrices which parameters are matrices, and sets
/// `rows` and `update` accordingly.
/// @param groups the choice of each entry of `options.groups`
/// @throws InvalidArgument if a parameter needs a choice or cannot be what was chosen, or if there
/// is no matrix
[[gnu::cold]] void decide_updates(std::vector<ParameterSpec>& specs,
                                  std::span<std::optional<Update> const> groups,
                                  std::string const& optimizer);

/// @brief Checks that each tile begins where the whole parameter begins a block of states, so that
/// both train to the same bits. For states with a scale per block.
/// @param offsets of the parameters in an adopted block, in elements; empty: none is adopted
/// @throws InvalidArgument naming the tile
[[gnu::cold]] void require_tiles_of_blocks(std::span<AnyParameter const> parameters,
                                           std::span<std::size_t const> offsets);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "validate_registration.ipp"
#endif
