#pragma once

#include "../../core/convert.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/storage_types.hpp"

#include <array>
#include <cstddef>
#include <cstring>

namespace ZERO_NAMESPACE::detail {

/// @brief Number of elements that are converted at a time. It bounds the memory and is a multiple
/// of every `item_elements`.
inline constexpr std::size_t state_chunk = 4096;

/// @brief Host memory for the items of a chunk.
using ItemBytes = std::array<std::byte, state_chunk * sizeof(float)>;

/// @brief Returns item `index` of items that need no alignment.
template <class T>
[[nodiscard]] T item_at(std::byte const* items, std::size_t index) noexcept {
    T item;
    std::memcpy(&item, items + index * sizeof(T), sizeof(T));
    return item;
}

/// @brief Returns item `index` as a float.
[[nodiscard]] inline float decode_item(DType dtype, std::byte const* items, std::size_t index) {
    switch (dtype) {
    case DType::float32: return item_at<float>(items, index);
    case DType::bfloat16: return to_float(item_at<bfloat16>(items, index));
    default: return to_float(item_at<float16>(items, index));
    }
}

/// @brief Sets item `index`.
template <class T>
void put_item(std::byte* items, std::size_t index, T item) noexcept {
    std::memcpy(items + index * sizeof(T), &item, sizeof(T));
}

/// @brief Rounds a float to item `index`.
inline void encode_item(DType dtype, std::byte* items, std::size_t index, float value) {
    switch (dtype) {
    case DType::float32: put_item(items, index, value); break;
    case DType::bfloat16: put_item(items, index, from_float<bfloat16>(value)); break;
    default: put_item(items, index, from_float<float16>(value));
    }
}

/// @brief Rounds a float to a type and back.
[[nodiscard]] inline float rounded_to(DType dtype, float value) {
    std::array<std::byte, sizeof(float)> item{};
    encode_item(dtype, item.data(), 0, value);
    return decode_item(dtype, item.data(), 0);
}

} // namespace ZERO_NAMESPACE::detail
