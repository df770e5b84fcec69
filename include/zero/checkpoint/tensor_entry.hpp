#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief One tensor of a safetensors file.
struct TensorEntry {
    std::string name;                 ///< unique in the file
    std::string dtype;                ///< "F32", "BF16", "F16", "U8", "U16", "I64", "U64", ...
    std::vector<std::uint64_t> shape; ///< row-major; empty: a single number
    std::uint64_t begin = 0;          ///< offset of its first byte in the data of the file
    std::uint64_t end = 0;            ///< one past its last byte
};

/// @brief Where the checksums of a safetensors file are.
enum class ChecksumPlace : std::uint8_t {
    inside, ///< in its last two tensors
    beside  ///< in the file "NAME.checksums"
};

} // namespace ZERO_NAMESPACE
