#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

struct LayoutOptions {
    std::size_t world = 1;             ///< W, the number of ranks; at least 1
    std::size_t element_bytes = 4;     ///< of the parameter type; a bucketer's cap is in bytes
    bool buckets_inside_units = false; ///< stage 3: what is gathered for a unit belongs to it alone
    std::vector<std::size_t>
        further_element_bytes{};           ///< of the second parameter type, the third, ...
    std::vector<std::size_t> unit_order{}; ///< in which units finish their backward pass, each
                                           ///< once; empty: in reverse registration order

    /// @brief Parameter types of the model.
    [[nodiscard]] std::size_t types() const noexcept { return 1 + further_element_bytes.size(); }

    /// @brief Bytes of an element of a parameter type.
    [[nodiscard]] std::size_t bytes_of(std::size_t type) const {
        return type == 0 ? element_bytes : further_element_bytes[type - 1];
    }
};

} // namespace ZERO_NAMESPACE
