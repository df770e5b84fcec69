#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../parameter_spec.hpp"
#include "order_by.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Refuses an order that does not list every unit once. @param units one more than the
/// highest unit that a parameter lists
/// @throws InvalidArgument
inline void require_unit_order(std::span<std::size_t const> unit_order, std::size_t units) {
    std::vector<char> is_listed(units, false);
    std::size_t listed = 0;
    for (std::size_t const unit : unit_order) {
        if (unit < units && !is_listed[unit]) {
            is_listed[unit] = true;
            ++listed;
        }
    }
    if (listed != units || unit_order.size() != units) {
        throw_error<InvalidArgument>(
            {"zero: unit_order lists ", unit_order.size(), " numbers, ", listed,
             " of them valid and for the first time; it has to list each of the ", units,
             " units once, or nothing for the reverse order of use."});
    }
}

/// @brief The indices of all parameters in the order in which their gradients become complete. O(n
/// log n).
///
/// A parameter is complete with the last of its units. Those of one unit stay side by side, in
/// reverse registration order.
/// @param unit_order in which units finish their backward pass; empty: parameters are complete in
/// reverse registration order
inline std::vector<std::size_t> parameters_in_ready_order(std::span<ParameterSpec const> parameters,
                                                          std::span<std::size_t const> unit_order) {
    std::vector<std::uint64_t> position(unit_order.size(), 0);
    for (std::size_t index = 0; index < unit_order.size(); ++index) {
        position[unit_order[index]] = index;
    }
    std::vector<std::uint64_t> complete; // of the parameters in reverse registration order
    for (std::size_t index = parameters.size(); index-- > 0;) {
        std::uint64_t last = 0;
        for (std::size_t const unit : parameters[index].units) {
            last = !position.empty() && position[unit] > last ? position[unit] : last;
        }
        complete.push_back(last);
    }
    std::vector<std::size_t> order = order_by(complete);
    for (std::size_t& index : order) {
        index = parameters.size() - 1 - index;
    }
    return order;
}

} // namespace ZERO_NAMESPACE::detail
