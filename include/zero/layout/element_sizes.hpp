#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Bytes per element of each model state, as the policies choose them. An input of
/// `plan_memory`.
struct ElementSizes {
    std::size_t parameter = 4;     ///< as stored and used
    std::size_t gradient = 4;      ///< as the backward pass writes it
    std::size_t communication = 4; ///< as gradients are sent
    std::size_t accumulation = 4;  ///< as micro-steps are summed
    std::size_t master = 0;        ///< in addition to the parameter; 0: no separate master weights
    std::size_t optimizer_state = 8; ///< all moments together

    /// @brief Bytes of master weights per block of 64 elements of a slice. A shorter last block
    /// counts as one.
    std::size_t master_per_block = 0;

    /// @brief Bytes of the scales of all moments per block of 64 elements of a slice, counted
    /// likewise.
    std::size_t optimizer_state_per_block = 0;
};

} // namespace ZERO_NAMESPACE
