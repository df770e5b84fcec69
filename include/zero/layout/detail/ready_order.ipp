#pragma once

#include "order_by.hpp"
#include "ready_order.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                                      std::span<std::size_t const> unit_order) {
    std::vector<std::uint64_t> position(unit_order.size(), 0);
    for (std::size_t index = 0; index < unit_order.size(); ++index) {
        position[unit_order[index]] = index;
    }
    std::vector<std::uint64_t> complete; // position of the last unit, in reverse registration order
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
