#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief What the geometry has to know of one parameter; the same on every rank.
struct ParameterSpec {
    std::string name;         ///< unique
    std::size_t elements = 0; ///< any number, 0 included
    std::vector<std::size_t> units{
        0}; ///< who uses it, numbered in order of use from 0; several for a tied parameter
    std::size_t group = 0; ///< parameter group: shares hyper-parameters
    bool trainable = true; ///< false: frozen, it has no gradient and no optimizer state
    std::size_t type = 0;  ///< which of the model's parameter types; a bucket holds one type
    std::size_t rows = 0;  ///< of the matrix that its elements are, row by row; 0: it is no matrix
};

} // namespace ZERO_NAMESPACE
