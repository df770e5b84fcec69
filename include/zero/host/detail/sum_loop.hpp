#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/tree_sum.hpp"
#include "cast_loops.hpp"
#include "lanes.hpp"

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
/// and rounds to `A` once. With `streams` no sums are held, and the results bypass the caches. Used
/// by `host::sum_tree`.
template <StorageType A, StorageType T, bool streams>
struct SumTreeLoop {
    ops::TreeSum<A> sum;
    T const* const* peers;
    int world;
    std::size_t n;

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
    /// Two packs: with four, the nodes of eight ranks would not fit into the registers.
    template <class F>
    struct Two {
        F a, b;
    };
    template <class F>
    struct Four {
        Two<F> low, high;
    };

    template <class F>
    [[gnu::always_inline]] static Two<F> add(Two<F> const& left, Two<F> const& right) noexcept {
        return {F::add(left.a, right.a), F::add(left.b, right.b)};
    }

    /// Returns where to load two packs: `rest`, with `count` elements, unless the range is whole.
    template <bool is_whole, class E>
    [[gnu::always_inline]] static E const* padded(E const* from, std::size_t count,
                                                  E* rest) noexcept {
        if constexpr (is_whole) {
            return from;
        } else {
            copy_elements(rest, from, count);
            return rest;
        }
    }

    /// The elements of a rank. The second two of four packs of 16 bits share the line of the first.
    template <class F, bool is_first>
    [[gnu::always_inline]] static Two<F> leaf(T const* from) noexcept {
        if constexpr (is_first || sizeof(T) == 4) {
            F::prefetch(from);
        }
        if constexpr (loads_alternate<F, T>) {
            Two<F> both;
            F::load_alternate(from, both.a, both.b);
            return both;
        } else {
            return {F::load(from), F::load(from + F::size)};
        }
    }

    /// The sum of `ranks` ranks, a power of two, from rank `first` on.
    template <class F, int ranks, bool is_first>
    [[gnu::always_inline]] static Two<F> node(T const* const* first, std::size_t i) noexcept {
        if constexpr (ranks == 1) {
            return leaf<F, is_first>(first[0] + i);
        } else {
            return add(node<F, ranks / 2, is_first>(first, i),
                       node<F, ranks / 2, is_first>(first + ranks / 2, i));
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
            T rest[4 * F::size] = {};
            T const* const from = padded<is_whole>(peers[rank] + i, count, rest);
            Two<F> low = leaf<F, true>(from);
            Two<F> high = leaf<F, false>(from + 2 * F::size);
            for (std::size_t carries = walk.next(); carries != 0; --carries) {
                --height;
                low = add(held[height].low, low);
                high = add(held[height].high, high);
            }
            held[height++] = {low, high};
        }
        return held[0];
    }

    /// Adds the held sums of `count` elements from `i` on, and stores two packs to `to`.
    template <bool is_whole, class F>
    [[gnu::always_inline]] void finish(Two<F> all, std::size_t i, std::size_t count,
                                       A* to) const noexcept {
        constexpr bool past_caches = streams && is_whole;
        std::size_t const held = streams ? 0 : sum.held.count;
        if constexpr (loads_alternate<F, T> && std::is_same_v<A, bfloat16>) {
            if (held == 0) {
                all.a.with_canonical_nan().template store_alternate<past_caches>(
                    all.b.with_canonical_nan(), to);
                return;
            }
        }
        if constexpr (loads_alternate<F, T>) {
            F::put_in_order(all.a, all.b);
        }
        for (std::size_t number = held; number-- != 0;) {
            float rest[2 * F::size] = {};
            float const* const from = padded<is_whole>(sum.held.at(number) + i, count, rest);
            F::prefetch(from);
            all = add({F::load(from), F::load(from + F::size)}, all);
        }
        all.a.with_canonical_nan().template store_with<past_caches, true>(
            all.b.with_canonical_nan(), to);
    }

    template <class F, int ranks>
    [[gnu::always_inline]] void all() const noexcept {
        SumTreeLoop const loop(*this); // no store can change it
        constexpr std::size_t two = 2 * F::size;
        std::size_t const left = n % (2 * two);
        std::size_t const whole = n - left;
        for (std::size_t i = 0; i < whole; i += 2 * two) {
            if constexpr (ranks == 0) {
                Four<F> const sums = loop.template root<F, true>(i, 2 * two);
                loop.template finish<true>(sums.low, i, two, loop.sum.out + i);
                loop.template finish<true>(sums.high, i + two, two, loop.sum.out + i + two);
            } else {
                loop.template finish<true>(node<F, ranks, true>(loop.peers, i), i, two,
                                           loop.sum.out + i);
                loop.template finish<true>(node<F, ranks, false>(loop.peers, i + two), i + two, two,
                                           loop.sum.out + i + two);
            }
        }
        F::finish_streams();
        if (left != 0) {
            A rest[2 * two];
            Four<F> const sums = root<F, false>(whole, left);
            std::size_t const low = left < two ? left : two;
            finish<false>(sums.low, whole, low, rest);
            finish<false>(sums.high, whole + low, left - low, rest + two);
            copy_elements(sum.out + whole, rest, left);
        }
    }
};

} // namespace ZERO_NAMESPACE::host::detail
