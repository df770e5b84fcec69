#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The arguments of `make_layout` besides the parameters.
struct LayoutOptions {
    std::size_t world = 1;             ///< W, the number of ranks, at least 1
    std::size_t element_bytes = 4;     ///< bytes per element of the first parameter type
    bool buckets_inside_units = false; ///< stage 3: no bucket holds parameters of two units
    std::vector<std::size_t> further_element_bytes{}; ///< bytes per element of the second parameter
                                                      ///< type, the third, ...
    std::vector<std::size_t> unit_order{}; ///< order in which units finish their backward pass,
                                           ///< each once; empty: by descending number
    std::size_t persistence_threshold = 0; ///< as in `GatherOptions`; stage 3 only
    std::size_t max_persistent_elements = static_cast<std::size_t>(-1); ///< as in `GatherOptions`

    /// @brief Returns the number of parameter types of the model.
    [[nodiscard]] std::size_t types() const noexcept { return 1 + further_element_bytes.size(); }

    /// @brief Returns the bytes per element of a parameter type.
    [[nodiscard]] std::size_t bytes_of(std::size_t type) const {
        return type == 0 ? element_bytes : further_element_bytes[type - 1];
    }
};

} // namespace ZERO_NAMESPACE
