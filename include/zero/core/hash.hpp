#pragma once

#include "detail/namespace.hpp"

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief A 64-bit hash of values that must be equal on all ranks. It is the same on every machine
/// and not cryptographic.
class Hash {
public:
    /// @brief Adds a value. The hash depends on the order of additions.
    constexpr Hash& add(std::uint64_t value) noexcept {
        _state ^= value + seed + (_state << 6U) + (_state >> 2U);
        _state *= 0xff51afd7ed558ccdU;
        _state ^= _state >> 32U;
        return *this;
    }

    /// @brief Adds the bits of a number; -0 counts as 0.
    constexpr Hash& add(double value) noexcept {
        return add(std::bit_cast<std::uint64_t>(value + 0.0));
    }

    /// @brief Adds a number or an enumerator.
    template <class T>
        requires(std::is_integral_v<T> || std::is_enum_v<T>)
    constexpr Hash& add(T value) noexcept {
        return add(static_cast<std::uint64_t>(value));
    }

    /// @brief Adds the length and the characters.
    constexpr Hash& add(std::string_view text) noexcept {
        add(std::uint64_t{text.size()});
        for (char const letter : text) {
            add(static_cast<unsigned char>(letter));
        }
        return *this;
    }

    /// @brief The hash of all values added so far.
    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return _state; }

private:
    static constexpr std::uint64_t seed = 0x9e3779b97f4a7c15U;

    std::uint64_t _state = seed;
};

} // namespace ZERO_NAMESPACE
