#pragma once

#include "run.hpp"
#include "streaming.hpp"

#include <cstddef>

namespace zero::host::detail {

/// Copies up to `count` elements to or from a full pack; the rest of the pack is zero and is never written back. So the last elements of
/// a range go through the same instructions as all others.
template <class T>
void copy_elements(T* to, T const* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = from[i];
    }
}

template <StorageType To, StorageType From, bool scaled, bool streams>
struct ConvertLoop {
    To* out;
    From const* in;
    std::size_t n;
    float factor;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        To* const to = out;
        From const* const from = in;
        std::size_t const whole = n - n % F::size;
        F const scale(factor);
        for (std::size_t i = 0; i < whole; i += F::size) {
            one<streams>(to + i, from + i, scale);
        }
        if constexpr (streams) {
            F::finish_streams();
        }
        if (whole < n) {
            From from_rest[F::size] = {};
            To to_rest[F::size];
            copy_elements(from_rest, from + whole, n - whole);
            one<false>(to_rest, from_rest, scale);
            copy_elements(to + whole, to_rest, n - whole);
        }
    }

private:
    template <bool past_caches, class F>
    [[gnu::always_inline]] static void one(To* to, From const* from, F const& scale) noexcept {
        F const value = F::load(from);
        if constexpr (scaled) {
            put<past_caches>(F::mul(value, scale).with_canonical_nan(), to);
        } else if constexpr (past_caches) {
            value.stream(to);
        } else {
            value.store(to);
        }
    }
};

template <StorageType To, StorageType From>
struct AccumulateLoop {
    To* sum;
    From const* in;
    std::size_t n;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        To* const to = sum;
        From const* const from = in;
        std::size_t const whole = n - n % F::size;
        for (std::size_t i = 0; i < whole; i += F::size) {
            F::add(F::load(to + i), F::load(from + i)).with_canonical_nan().store_number(to + i);
        }
        if (whole < n) {
            From from_rest[F::size] = {};
            To to_rest[F::size] = {};
            copy_elements(from_rest, from + whole, n - whole);
            copy_elements(to_rest, to + whole, n - whole);
            F::add(F::load(to_rest), F::load(from_rest)).with_canonical_nan().store_number(to_rest);
            copy_elements(to + whole, to_rest, n - whole);
        }
    }
};

} // namespace zero::host::detail
