#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/set_by_name.hpp"
#include "../core/storage_types.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
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

/// @brief An array of the caller in a checkpoint, such as the state of a data loader or of a random
/// number generator.
struct ExtraArray {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    std::string dtype = "U8";                  ///< type of an item, as safetensors names it
    std::vector<std::uint64_t> shape{};        ///< row-major, of what this rank holds; empty: one
                                               ///< dimension, as long as `data`
    std::vector<std::byte> data{};             ///< items, little-endian
    /// Whether each rank holds rows of its own, any number of them: the array is the rows of rank
    /// 0, then those of rank 1, and so on. Loaded on as many ranks, each gets its own; otherwise
    /// ranks get equal numbers, the first ones one more. false: the array of rank 0 is saved, and
    /// every rank gets it.
    bool is_by_rows = false;

    /// @brief Makes an array of numbers, with one dimension.
    /// @tparam T integer, float, double, bfloat16 or float16
    template <class T>
    [[nodiscard]] static ExtraArray of(std::span<T const> values, bool is_by_rows = false) {
        ExtraArray array;
        array.dtype = std::is_same_v<T, bfloat16> ? "B" : "";
        array.dtype += std::is_integral_v<T> ? (std::is_signed_v<T> ? 'I' : 'U') : 'F';
        array.dtype += std::to_string(8 * sizeof(T));
        auto const bytes = std::as_bytes(values);
        array.data.assign(bytes.begin(), bytes.end());
        array.is_by_rows = is_by_rows;
        return array;
    }

    /// @brief Returns the items; what does not fill one is left out. @tparam T a type of their size
    template <class T>
    [[nodiscard]] std::vector<T> values() const {
        std::vector<T> all(data.size() / sizeof(T));
        if (!all.empty()) {
            std::memcpy(all.data(), data.data(), all.size() * sizeof(T));
        }
        return all;
    }
};

/// @brief Where the checksums of a safetensors file are.
enum class ChecksumPlace : std::uint8_t {
    inside, ///< in its last two tensors
    beside  ///< in the file "NAME.checksums"
};

} // namespace ZERO_NAMESPACE
