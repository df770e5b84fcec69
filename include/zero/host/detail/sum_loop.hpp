#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/tree_sum.hpp"
#include "cast_loops.hpp"

#include <cstddef>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

/// Prefetches the four packs of one step.
template <class F, class E>
[[gnu::always_inline]] inline void prefetch_step(E const* from) noexcept {
    constexpr std::size_t line = 64;
    for (std::size_t byte = 0; byte < 4 * F::size * sizeof(E); byte += line) {
        F::prefetch(from + byte / sizeof(E));
    }
}

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

/// Sums the ranks' ranges per element, as a subtree of micro-batches, adds the sums that are held,
/// and rounds to `A` once. With `streams` the results bypass the caches. Used by `host::sum_tree`.
template <StorageType A, StorageType T>
struct SumTreeLoop {
    ops::TreeSum<A> sum;
    T const* const* peers;
    int world;
    std::size_t n;
    bool streams;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        switch (world) { // sums of few ranks stay in registers
        case 1: all<F, 1>(); break;
        case 2: all<F, 2>(); break;
        case 4: all<F, 4>(); break;
        case 8: all<F, 8>(); break;
        default: all<F, 0>();
        }
    }

private:
    template <class F>
    struct Four {
        F a, b, c, d;
    };

    template <class F>
    [[gnu::always_inline]] static Four<F> add(Four<F> const& left, Four<F> const& right) noexcept {
        return {F::add(left.a, right.a), F::add(left.b, right.b), F::add(left.c, right.c),
                F::add(left.d, right.d)};
    }

    template <class F, class E>
    [[gnu::always_inline]] static Four<F> load_whole(E const* from) noexcept {
        return {F::load(from), F::load(from + F::size), F::load(from + 2 * F::size),
                F::load(from + 3 * F::size)};
    }

    /// Loads `count` elements, at most four packs.
    template <class F, bool is_whole, class E>
    [[gnu::always_inline]] static Four<F> load(E const* from, std::size_t count) noexcept {
        if constexpr (is_whole) {
            prefetch_step<F>(from);
            return load_whole<F>(from);
        } else {
            E rest[4 * F::size] = {};
            copy_elements(rest, from, count);
            return load_whole<F>(rest);
        }
    }

    /// The sum of `ranks` ranks, a power of two, from rank `first` on.
    template <class F, int ranks>
    [[gnu::always_inline]] static Four<F> node(T const* const* first, std::size_t i) noexcept {
        if constexpr (ranks == 1) {
            return load<F, true>(first[0] + i, 0);
        } else {
            return add(node<F, ranks / 2>(first, i), node<F, ranks / 2>(first + ranks / 2, i));
        }
    }

    /// The sum of any number of ranks.
    template <class F, bool is_whole>
    [[gnu::always_inline]] Four<F> root(std::size_t i, std::size_t count) const noexcept {
        constexpr std::size_t most = 8 * sizeof(int) + 1; // levels of any world and group
        Four<F> held[most];
        std::size_t height = 0;
        ops::TreeWalk walk(static_cast<std::size_t>(world), sum.held.rank_group);
        for (int rank = 0; rank < world; ++rank) {
            Four<F> leaf = load<F, is_whole>(peers[rank] + i, count);
            for (std::size_t carries = walk.next(); carries != 0; --carries) {
                leaf = add(held[--height], leaf);
            }
            held[height++] = leaf;
        }
        return held[0];
    }

    template <class F, bool is_whole>
    [[gnu::always_inline]] void finish(Four<F> all, std::size_t i,
                                       std::size_t count) const noexcept {
        for (std::size_t number = sum.held.count; number-- != 0;) {
            all = add(load<F, is_whole>(sum.held.at(number) + i, count), all);
        }
        if constexpr (is_whole) {
            streams ? put<true>(all, sum.out + i) : put<false>(all, sum.out + i);
        } else {
            A rest[4 * F::size];
            put<false>(all, rest);
            copy_elements(sum.out + i, rest, count);
        }
    }

    template <bool past_caches, class F>
    [[gnu::always_inline]] static void put(Four<F> const& all, A* to) noexcept {
        all.a.with_canonical_nan().template store_with<past_caches, true>(
            all.b.with_canonical_nan(), to);
        all.c.with_canonical_nan().template store_with<past_caches, true>(
            all.d.with_canonical_nan(), to + 2 * F::size);
    }

    template <class F, int ranks>
    [[gnu::always_inline]] void all() const noexcept {
        constexpr std::size_t step = 4 * F::size;
        std::size_t const whole = n - n % step;
        for (std::size_t i = 0; i < whole; i += step) {
            if constexpr (ranks == 0) {
                finish<F, true>(root<F, true>(i, step), i, step);
            } else {
                finish<F, true>(node<F, ranks>(peers, i), i, step);
            }
        }
        F::finish_streams();
        if (whole != n) {
            finish<F, false>(root<F, false>(whole, n - whole), whole, n - whole);
        }
    }
};

} // namespace ZERO_NAMESPACE::host::detail
