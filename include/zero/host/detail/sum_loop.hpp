#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "cast_loops.hpp"

#include <cstddef>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

/// Sums the ranks' ranges per element, in rank order, and rounds the sums to `T`. Then converts
/// them to `A`, or adds them if `adds`. With `streams` converted sums bypass the caches. Used by
/// `host::sum_ranks`.
template <StorageType A, StorageType T, bool streams, bool adds>
struct SumRanksLoop {
    static_assert(!streams || !adds);

    A* out;
    T const* const* peers;
    int world;
    std::size_t n;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        A* const to = out;
        T const* const* const from = peers;
        int const ranks = world;
        constexpr std::size_t step =
            4 * F::size; // four sums at a time hide the latency of the additions
        std::size_t const whole = n - n % step;
        for (std::size_t i = 0; i < whole; i += step) {
            T const* const first = from[0] + i;
            prefetch_step<F>(first);
            F sum0 = F::load(first);
            F sum1 = F::load(first + F::size);
            F sum2 = F::load(first + 2 * F::size);
            F sum3 = F::load(first + 3 * F::size);
            for (int rank = 1; rank < ranks; ++rank) {
                T const* const peer = from[rank] + i;
                prefetch_step<F>(peer);
                sum0 = F::add(sum0, F::load(peer));
                sum1 = F::add(sum1, F::load(peer + F::size));
                sum2 = F::add(sum2, F::load(peer + 2 * F::size));
                sum3 = F::add(sum3, F::load(peer + 3 * F::size));
            }
            if constexpr (adds) {
                prefetch_step<F>(to + i);
                add_two(sum0, sum1, to + i);
                add_two(sum2, sum3, to + i + 2 * F::size);
            } else {
                put_two<streams>(sum0, sum1, to + i);
                put_two<streams>(sum2, sum3, to + i + 2 * F::size);
            }
        }
        if constexpr (streams) {
            F::finish_streams();
        }
        constexpr std::size_t pair = 2 * F::size;
        for (std::size_t i = whole; i < n; i += pair) {
            std::size_t const count = n - i < pair ? n - i : pair;
            T rest[pair] = {};
            A out_rest[pair] = {};
            copy_elements(rest, from[0] + i, count);
            F sum0 = F::load(rest);
            F sum1 = F::load(rest + F::size);
            for (int rank = 1; rank < ranks; ++rank) {
                copy_elements(rest, from[rank] + i, count);
                sum0 = F::add(sum0, F::load(rest));
                sum1 = F::add(sum1, F::load(rest + F::size));
            }
            copy_elements(out_rest, to + i, count);
            if constexpr (adds) {
                add_two(sum0, sum1, out_rest);
            } else {
                put_two<false>(sum0, sum1, out_rest);
            }
            copy_elements(to + i, out_rest, count);
        }
    }

private:
    /// Prefetches the elements of one step.
    template <class F, class E>
    [[gnu::always_inline]] static void prefetch_step(E const* from) noexcept {
        constexpr std::size_t line = 64;
        for (std::size_t byte = 0; byte < 4 * F::size * sizeof(E); byte += line) {
            F::prefetch(from + byte / sizeof(E));
        }
    }

    /// Returns the sum as it would be stored in the type of the ranks.
    template <class F>
    [[gnu::always_inline]] static F rounded(F const& sum) noexcept {
        return sum.with_canonical_nan().template rounded_to<T>();
    }

    template <bool past_caches, class F>
    [[gnu::always_inline]] static void put_two(F const& first, F const& second, A* to) noexcept {
        if constexpr (std::is_same_v<A, T>) { // the store rounds
            first.with_canonical_nan().template store_with<past_caches, true>(
                second.with_canonical_nan(), to);
        } else {
            rounded(first).template store_with<past_caches, true>(rounded(second), to);
        }
    }

    template <class F>
    [[gnu::always_inline]] static void add_two(F const& first, F const& second, A* to) noexcept {
        F::add(F::load(to), rounded(first))
            .with_canonical_nan()
            .template store_with<false, true>(
                F::add(F::load(to + F::size), rounded(second)).with_canonical_nan(), to);
    }
};

} // namespace ZERO_NAMESPACE::host::detail
