#pragma once

#include "../core/detail/namespace.hpp"
#include "block_scale.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The requirements of `Codec`, one concept each. The concept and its messages use them.
namespace ZERO_NAMESPACE::detail {

/// @brief Elements of a block that a codec encodes at once.
inline constexpr std::size_t coded_elements = ops::scaled_block_elements;

template <class C>
concept CodecHasSize = requires {
    { C::bytes_per_block } -> std::same_as<std::size_t const&>;
};

template <class C>
concept CodecSizeFits =
    C::bytes_per_block >= 1 && C::bytes_per_block <= coded_elements * sizeof(float);

template <class C>
concept CodecHasEncode = requires(float const (&values)[coded_elements], std::uint8_t* to) {
    { C::encode(values, to) } noexcept -> std::same_as<void>;
};

template <class C>
concept CodecHasDecode = requires(std::uint8_t const* from, float (&values)[coded_elements]) {
    { C::decode(from, values) } noexcept -> std::same_as<void>;
};

template <class C>
concept CodecHasErrorBound = requires(float largest) {
    { C::error_bound(largest) } noexcept -> std::same_as<float>;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A way to send a block of 64 elements of one parameter in fewer bytes.
///
/// - `static constexpr std::size_t bytes_per_block`: 1 to 256.
/// - `static void encode(float const (&values)[64], std::uint8_t* to) noexcept` writes that many
/// bytes, at any address. Elements behind the end of a parameter are 0.
/// - `static void decode(std::uint8_t const* from, float (&values)[64]) noexcept`.
/// - `static float error_bound(float largest) noexcept`: an upper bound of |x - decode(encode(x))|
/// in a block whose largest magnitude is `largest`.
///
/// Beyond this syntax a model guarantees: it is pure; every bit of the bytes follows from the
/// values; a block of zeros decodes to zeros; all values of a block with an infinity or a NaN
/// decode to NaN or infinity, so that overflow is found. A codec of frozen parameters also encodes
/// decoded blocks to the codes that they had. On a device mark the functions
/// `ZERO_HOST_DEVICE`, and use the functions of `ops/arithmetic.hpp`.
template <class C>
concept Codec =
    std::is_empty_v<C> && detail::CodecHasSize<C> && detail::CodecSizeFits<C>
    && detail::CodecHasEncode<C> && detail::CodecHasDecode<C> && detail::CodecHasErrorBound<C>;

/// @brief Reports each reason why `C` is not a `Codec` as one error.
template <class C>
consteval bool diagnose_codec() {
    static_assert(detail::CodecHasSize<C>,
                  "zero: a Codec needs 'static constexpr std::size_t bytes_per_block' (bytes of "
                  "64 elements). To send values as they are, write zero::Plain.");
    if constexpr (detail::CodecHasSize<C>) {
        static_assert(detail::CodecSizeFits<C>,
                      "zero: 'bytes_per_block' of a Codec is from 1 to 256, the bytes of 64 "
                      "floats.");
        static_assert(std::is_empty_v<C>,
                      "zero: a Codec is an empty type whose functions are static.");
        static_assert(detail::CodecHasEncode<C>,
                      "zero: a Codec needs 'static void encode(float const (&values)[64], "
                      "std::uint8_t* to) noexcept'.");
        static_assert(detail::CodecHasDecode<C>,
                      "zero: a Codec needs 'static void decode(std::uint8_t const* from, float "
                      "(&values)[64]) noexcept'.");
        static_assert(detail::CodecHasErrorBound<C>,
                      "zero: a Codec needs 'static float error_bound(float largest) noexcept'.");
    }
    return Codec<C>;
}

} // namespace ZERO_NAMESPACE
