#pragma once

#include "detail/namespace.hpp"
#include "storage_types.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief An element type as a run-time value, for messages, logs and the tables of a transport.
enum class DType : std::uint8_t { float32, bfloat16, float16, int64, bytes, power8 };

/// @brief The enumerator of element type T.
template <class T>
constexpr DType dtype_of() noexcept {
    if constexpr (std::is_same_v<T, float>) {
        return DType::float32;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        return DType::bfloat16;
    } else if constexpr (std::is_same_v<T, float16>) {
        return DType::float16;
    } else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t>) {
        return DType::int64;
    } else if constexpr (std::is_same_v<T, power8>) {
        return DType::power8;
    } else {
        static_assert(
            sizeof(T) == 1,
            "zero: a collective moves float, bfloat16, float16, 64-bit integers or bytes.");
        return DType::bytes;
    }
}

/// @brief The size of one element, in bytes.
constexpr std::size_t size_of(DType type) noexcept {
    switch (type) {
    case DType::float32: return 4;
    case DType::bfloat16:
    case DType::float16: return 2;
    case DType::int64: return 8;
    case DType::power8:
    case DType::bytes: return 1;
    }
    return 0;
}

/// @brief The name of an element type.
constexpr char const* name_of(DType type) noexcept {
    switch (type) {
    case DType::float32: return "float32";
    case DType::bfloat16: return "bfloat16";
    case DType::float16: return "float16";
    case DType::int64: return "int64";
    case DType::bytes: return "bytes";
    case DType::power8: return "power8";
    }
    return "unknown";
}

} // namespace ZERO_NAMESPACE
