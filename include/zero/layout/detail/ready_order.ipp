#pragma once

#include "../../core/detail/light_std.hpp"
#include "order_by.hpp"
#include "ready_order.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::vector<std::uint64_t>
complete_times(std::span<ParameterSpec const> parameters, std::span<std::size_t const> unit_order) {
    std::vector<std::uint64_t> position(unit_order.size(), 0);
    for (std::size_t index = 0; index < unit_order.size(); ++index) {
        position[unit_order[index]] = index;
    }
    std::vector<std::uint64_t> times;
    for (ParameterSpec const& parameter : parameters) {
        std::uint64_t last = 0;
        for (std::size_t const unit : parameter.units) { // descending numbers ascend
            last = larger(last, position.empty() ? ~std::uint64_t{unit} : position[unit]);
        }
        times.push_back(last);
    }
    return times;
}

ZERO_COLD_INLINE std::vector<std::size_t> ready_order(std::span<ParameterSpec const> parameters,
                                                      std::span<std::size_t const> unit_order) {
    std::vector<std::uint64_t> const times = complete_times(parameters, unit_order);
    std::vector<std::uint64_t> const reversed(times.rbegin(), times.rend());
    std::vector<std::size_t> order = order_by(reversed);
    for (std::size_t& index : order) {
        index = parameters.size() - 1 - index;
    }
    return order;
}

} // namespace ZERO_NAMESPACE::detail
