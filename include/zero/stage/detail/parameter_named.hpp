#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/range.hpp"

#include <cstddef>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the index of the parameter of that name, or those of its tiles if it is
/// registered in tiles. O(parameters). @throws InvalidArgument if there is none
[[gnu::cold]] inline Range parameter_named(FlatLayout const& layout, std::string_view name) {
    std::size_t const count = layout.parameters().size();
    for (std::size_t index = 0; index < count; ++index) {
        if (layout.parameter(index).name == name) {
            return {index, index + 1};
        }
        if (!name.empty() && layout.parameter(index).tile.of == name) {
            std::size_t end = index + 1;
            while (end < count && layout.parameter(end).tile.of == name) {
                ++end;
            }
            return {index, end};
        }
    }
    throw_error<InvalidArgument>(
        {"zero: no parameter is named '", name, "'; the model has ", count, " parameters."});
}

} // namespace ZERO_NAMESPACE::detail
