#pragma once

#include "../../core/detail/namespace.hpp"
#include "cast_loops.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// Sums the ranks' ranges per element, in rank order. With `streams` the results bypass the caches.
/// Used by `host::sum_ranks`.
template <StorageType T, bool streams>
struct SumRanksLoop {
    T* out;
    T const* const* peers;
    int world;
    std::size_t n;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        T* const to = out;
        T const* const* const from = peers;
        int const ranks = world;
        constexpr std::size_t step =
            4 * F::size; // four sums at a time hide the latency of the additions
        std::size_t const whole = n - n % step;
        for (std::size_t i = 0; i < whole; i += step) {
            T const* const first = from[0] + i;
            F sum0 = F::load(first);
            F sum1 = F::load(first + F::size);
            F sum2 = F::load(first + 2 * F::size);
            F sum3 = F::load(first + 3 * F::size);
            for (int rank = 1; rank < ranks; ++rank) {
                T const* const peer = from[rank] + i;
                sum0 = F::add(sum0, F::load(peer));
                sum1 = F::add(sum1, F::load(peer + F::size));
                sum2 = F::add(sum2, F::load(peer + 2 * F::size));
                sum3 = F::add(sum3, F::load(peer + 3 * F::size));
            }
            put<streams>(sum0.with_canonical_nan(), to + i);
            put<streams>(sum1.with_canonical_nan(), to + i + F::size);
            put<streams>(sum2.with_canonical_nan(), to + i + 2 * F::size);
            put<streams>(sum3.with_canonical_nan(), to + i + 3 * F::size);
        }
        if constexpr (streams) {
            F::finish_streams();
        }
        for (std::size_t i = whole; i < n; i += F::size) {
            std::size_t const count = n - i < F::size ? n - i : F::size;
            T rest[F::size] = {};
            copy_elements(rest, from[0] + i, count);
            F sum = F::load(rest);
            for (int rank = 1; rank < ranks; ++rank) {
                copy_elements(rest, from[rank] + i, count);
                sum = F::add(sum, F::load(rest));
            }
            sum.with_canonical_nan().store_number(rest);
            copy_elements(to + i, rest, count);
        }
    }
};

} // namespace ZERO_NAMESPACE::host::detail
