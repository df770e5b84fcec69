#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "copy_loop.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// @file
/// @brief The loops that convert and accumulate. Used by `kernels.ipp`.

/// Copies `count` elements to or from a full pack, whose other elements are zero and are never
/// written back. So the last elements of a range pass through the same instructions as all others.
template <class T>
void copy_elements(T* to, T const* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = from[i];
    }
}

/// Converts a range and multiplies it by a factor if `scaled`. With `streams` the results bypass
/// the caches from the first aligned 32 bytes on.
template <StorageType To, StorageType From, bool scaled, bool streams>
struct ConvertLoop {
    To* out;
    From const* in;
    std::size_t n;
    float factor;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        To* to = out;
        From const* from = in;
        std::size_t left = n;
        F const scale(factor);
        if constexpr (streams) {
            std::size_t const before =
                reinterpret_cast<std::uintptr_t>(to) % streamed_alignment / sizeof(To);
            std::size_t const count =
                before == 0 ? 0
                            : zero::detail::smaller(streamed_alignment / sizeof(To) - before, left);
            some(to, from, count, scale);
            to += count;
            from += count;
            left -= count;
        }
        constexpr std::size_t step = 2 * F::size;
        std::size_t const whole = left - left % step;
        for (std::size_t i = 0; i < whole; i += step) {
            F::prefetch(from + i);
            two<streams>(to + i, from + i, scale);
        }
        if constexpr (streams) {
            F::finish_streams();
        }
        some(to + whole, from + whole, left - whole, scale);
    }

private:
    template <bool past_caches, class F>
    [[gnu::always_inline]] static void two(To* to, From const* from, F const& scale) noexcept {
        F const first = F::load(from);
        F const second = F::load(from + F::size);
        if constexpr (scaled) {
            F::mul(first, scale)
                .with_canonical_nan()
                .template store_with<past_caches, true>(F::mul(second, scale).with_canonical_nan(),
                                                        to);
        } else {
            first.template store_with<past_caches, false>(second, to);
        }
    }

    /// Converts any number of elements, two packs at a time; the last packs may be partial.
    template <class F>
    [[gnu::always_inline]] static void some(To* to, From const* from, std::size_t count,
                                            F const& scale) noexcept {
        constexpr std::size_t step = 2 * F::size;
        for (std::size_t i = 0; i < count; i += step) {
            std::size_t const here = zero::detail::smaller(step, count - i);
            From in_rest[step] = {};
            To out_rest[step];
            copy_elements(in_rest, from + i, here);
            two<false>(out_rest, in_rest, scale);
            copy_elements(to + i, out_rest, here);
        }
    }
};

/// Adds one range to another, element by element.
template <StorageType To, StorageType From>
struct AccumulateLoop {
    To* sum;
    From const* in;
    std::size_t n;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        To* const to = sum;
        From const* const from = in;
        constexpr std::size_t step = 2 * F::size;
        std::size_t const whole = n - n % step;
        for (std::size_t i = 0; i < whole; i += step) {
            F::prefetch(from + i);
            F::prefetch(to + i);
            two<F>(to + i, from + i);
        }
        if (whole < n) {
            From from_rest[step] = {};
            To to_rest[step] = {};
            copy_elements(from_rest, from + whole, n - whole);
            copy_elements(to_rest, to + whole, n - whole);
            two<F>(to_rest, from_rest);
            copy_elements(to + whole, to_rest, n - whole);
        }
    }

private:
    template <class F>
    [[gnu::always_inline]] static void two(To* to, From const* from) noexcept {
        F const second =
            F::add(F::load(to + F::size), F::load(from + F::size)).with_canonical_nan();
        F::add(F::load(to), F::load(from))
            .with_canonical_nan()
            .template store_with<false, true>(second, to);
    }
};

} // namespace ZERO_NAMESPACE::host::detail
