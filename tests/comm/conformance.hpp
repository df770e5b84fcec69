#pragma once

// The requirements of every communicator on the host. A new communicator needs a file like
// loopback_conformance_test.cpp with a fixture:
//
//     struct Fixture {
//         // calls body(communicator) as `world` ranks
//         template <class Body> static void run(int world, Body const& body);
//         // optional: waits for all ranks without the communicator, if a collective can end on one
//         // rank while another is still inside it
//         static void meet(int world);
//     };
//
// Commands of the queue write and read all data and overwrite it directly after the collective, so
// a missing event is visible.

#include "caller.hpp"
#include "support/tree_root.hpp"

#include <zero/comm/communicator.hpp>
#include <zero/comm/detail/optional_operations.hpp>
#include <zero/comm/sum_over_ranks.hpp>
#include <zero/core/convert.hpp>
#include <zero/core/dtype.hpp>
#include <zero/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace zero::test {

/// @brief Checks the optional reduce-scatter that accumulates in float, if the communicator has it.
/// There are two calls; the second one adds.
template <class T, class C>
void check_accumulated_sums(Caller<C>& c, std::vector<std::size_t> const& cuts) {
    if constexpr (detail::AccumulatesReduceScatter<C, T, float>) {
        std::size_t const begin = cuts[c.index()];
        std::size_t const own = cuts[c.index() + 1] - begin;
        std::vector<T> send(cuts.back());
        std::vector<float> sum(own);
        std::vector<float> found(own);
        std::vector<float> expected(own);
        c.poison(sum);
        for (bool const is_added : {false, true}) {
            std::size_t const salt = ++c.serial;
            std::vector<T> const source = values_of<T>(c.rank(), cuts.back(), salt);
            c.copy(send.data(), source.data(), cuts.back());
            c.communicator->reduce_scatter(static_cast<T const*>(send.data()), sum.data(), cuts,
                                           c.queue, CollectiveTag{"accumulated sums", salt},
                                           is_added);
            c.poison(send);
            c.queue->synchronise();
            auto const sums = c.template sums<T>(begin, begin + own, salt);
            for (std::size_t i = 0; i < own; ++i) {
                expected[i] = (is_added ? expected[i] : 0.0F) + to_float(sums[i]);
            }
        }
        c.copy(found.data(), static_cast<float const*>(sum.data()), own);
        c.queue->synchronise();
        c.expect_equal(found, expected, "accumulated reduce-scatter " + to_text(cuts));
    }
}

/// @brief Checks the optional reduce-scatter of pieces, if the communicator has it, with the bits
/// of the same sums from one address. Ranks cut what they send differently: into pieces of 1 to 70
/// elements at any address, of which some are zeros, with gaps between them; some ranks send one
/// address. Memory and tables are changed by the commands that follow.
template <class T, class C>
void check_sums_of_pieces(Caller<C>& c, std::vector<std::size_t> const& cuts) {
    if constexpr (detail::ReduceScattersPieces<C, T, float>) {
        std::size_t const begin = cuts[c.index()];
        std::size_t const own = cuts[c.index() + 1] - begin;
        std::vector<float> sum(own);
        for (std::size_t const in_pieces : {0U, 1U, 2U}) { // all ranks, the odd ones, all but one
            std::size_t const salt = ++c.serial;
            auto const sends_pieces = [&](int rank) {
                return in_pieces == 0 || (in_pieces == 1 ? rank % 2 == 1 : rank != 1);
            };
            auto const random = [&](int rank, std::size_t at) {
                return static_cast<std::size_t>(
                    mix(mix(static_cast<std::uint64_t>(rank) * 1000 + salt) + at));
            };
            // What a rank sends, and of which elements its values; the others are zeros.
            auto const pieces_of = [&](int rank, std::vector<char>& is_sent) {
                std::vector<SentPiece> pieces;
                for (std::size_t at = 0; at < cuts.back();) {
                    at += random(rank, at) % 3 == 0 ? random(rank, at) % 9 : 0;
                    std::size_t const most = cuts.back() - std::min(at, cuts.back());
                    std::size_t const elements = std::min(most, 1 + random(rank, at + 1) % 70);
                    if (elements != 0) {
                        bool const is_zero = random(rank, at + 2) % 7 == 0;
                        std::fill_n(is_sent.begin() + static_cast<std::ptrdiff_t>(at), elements,
                                    is_zero ? 0 : 1);
                        pieces.push_back({is_zero ? nullptr : &is_sent, at, elements});
                    }
                    at += elements;
                }
                if (pieces.empty() && cuts.back() != 0) {
                    pieces.push_back({nullptr, 0, cuts.back()});
                }
                return pieces;
            };
            std::vector<T> const source = values_of<T>(c.rank(), cuts.back(), salt);
            std::vector<char> is_sent(cuts.back());
            std::vector<SentPiece> pieces = pieces_of(c.rank(), is_sent);
            std::vector<T> memory(2 * cuts.back() + pieces.size());
            std::vector<T> sources(memory.size());
            std::size_t offset = 0; // gaps of one element change the alignment
            for (SentPiece& piece : pieces) {
                if (piece.data != nullptr) {
                    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(piece.begin),
                                piece.elements,
                                sources.begin() + static_cast<std::ptrdiff_t>(offset));
                    piece.data = memory.data() + offset;
                    offset += piece.elements + 1;
                }
            }
            std::vector<void const*> const addresses(3, source.data()); // of no piece
            bool const is_added = salt % 2 == 0;
            std::vector<float> const before = values_of<float>(c.rank(), own, salt + 500);
            c.copy(sum.data(), before.data(), own);
            CollectiveTag const tag{"sums of pieces", salt};
            if (sends_pieces(c.rank())) {
                c.copy(memory.data(), static_cast<T const*>(sources.data()), memory.size());
                c.communicator->reduce_scatter(SentPieces<T>{pieces}, sum.data(), cuts, c.queue,
                                               tag, is_added);
                for (SentPiece& piece : pieces) { // a reader that is late reads what is wrong
                    C::Backend::copy_bytes(c.queue, &piece.data, addresses.data(),
                                           sizeof(void const*));
                }
            } else {
                c.copy(memory.data(), source.data(), cuts.back());
                c.communicator->reduce_scatter(static_cast<T const*>(memory.data()), sum.data(),
                                               cuts, c.queue, tag, is_added);
            }
            c.poison(memory);
            c.queue->synchronise();
            std::vector<float> expected(own);
            std::vector<std::vector<T>> of_ranks;
            for (int rank = 0; rank < c.world(); ++rank) {
                std::vector<T> values = values_of<T>(rank, cuts.back(), salt);
                std::vector<char> sent(cuts.back(), sends_pieces(rank) ? 0 : 1);
                if (sends_pieces(rank)) {
                    (void)pieces_of(rank, sent);
                }
                for (std::size_t i = 0; i < cuts.back(); ++i) {
                    values[i] = sent[i] != 0 ? values[i] : T{};
                }
                of_ranks.push_back(values);
            }
            for (std::size_t i = 0; i < own; ++i) {
                float total = 0.0F;
                for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
                    float const value = to_float(of_ranks[rank][begin + i]);
                    total = rank == 0 ? value : total + value;
                }
                float const rounded = to_float(from_float<T>(total));
                expected[i] = (is_added ? before[i] : 0.0F) + rounded;
            }
            c.expect_equal(sum, expected, "reduce-scatter of pieces " + to_text(cuts));
        }
    }
}

/// @brief Checks the optional reduce-scatter as a subtree of micro-batches into `A`, if the
/// communicator has it: by `position()`, alone, and with two sums that are held.
template <class T, class A, class C>
void check_tree_sums(Caller<C>& c, std::vector<std::size_t> const& cuts) {
    if constexpr (detail::ReduceScattersInTree<C, T, A>) {
        static_assert(detail::HasPosition<C>,
                      "a communicator that adds in a tree needs 'int position() const noexcept': "
                      "the rank, or the position of the communicator that it wraps");
        if (!detail::reason_against_tree(*c.communicator).empty()) {
            return;
        }
        std::size_t const begin = cuts[c.index()];
        std::size_t const own = cuts[c.index() + 1] - begin;
        auto const world = static_cast<std::size_t>(c.world());
        std::size_t group = world % 3 == 0 ? 3 : world;
        if (detail::inadmissible_ranks_of(*c.communicator, {world, group, world}) != 0) {
            group = world; // two of six ranks inside: pairs are nodes of a group of six
        }
        std::vector<int> const ranks = c.ranks_by_position();
        for (std::size_t const held : {0U, 2U}) {
            std::size_t const salt = ++c.serial;
            std::vector<T> const source = values_of<T>(c.rank(), cuts.back(), salt);
            std::vector<float> const sums = values_of<float>(c.rank(), 2 * own, salt + 1000);
            std::vector<T> send(cuts.back());
            std::vector<A> out(own);
            std::vector<A> found(own);
            std::vector<A> expected(own);
            std::vector<std::vector<T>> of_ranks;
            std::string order; // the ranks by position
            for (int const rank : ranks) {
                of_ranks.push_back(values_of<T>(rank, cuts.back(), salt));
                order += " " + std::to_string(rank);
            }
            for (std::size_t i = 0; i < own; ++i) {
                std::vector<float> leaves;
                for (auto const& values : of_ranks) {
                    leaves.push_back(to_float(values[begin + i]));
                }
                float sum = tree_root(leaves, group);
                for (std::size_t number = held; number-- > 0;) {
                    sum = sums[number * own + i] + sum;
                }
                expected[i] = from_float<A>(sum);
            }
            c.copy(send.data(), source.data(), cuts.back());
            c.poison(out);
            ops::TreeSum<A> const sum{out.data(),
                                      {held == 0 ? nullptr : sums.data(),
                                       held == 0 ? nullptr : sums.data() + own, own, held, group}};
            c.communicator->reduce_scatter(static_cast<T const*>(send.data()), sum, cuts, c.queue,
                                           CollectiveTag{"sums in a tree", salt});
            c.poison(send);
            c.copy(found.data(), static_cast<A const*>(out.data()), own);
            c.queue->synchronise();
            c.expect_equal(found, expected,
                           "reduce-scatter in a tree " + to_text(cuts)
                               + ", which adds the ranks in another order than position() says ("
                               + order.substr(1)
                               + "), or in groups that inadmissible_ranks() does not name; a "
                                 "wrapper forwards both:");
        }
    }
}

/// @brief Checks a reduce-scatter and an all-reduce of one type with one list of cuts, in place or
/// into another buffer.
template <class T, class C>
void check_sums(Caller<C>& c, std::vector<std::size_t> const& cuts, bool is_in_place) {
    std::size_t const total = cuts.back();
    std::size_t const begin = cuts[c.index()];
    std::size_t const own = cuts[c.index() + 1] - begin;
    std::size_t const salt = ++c.serial;
    std::vector<T> const source = values_of<T>(c.rank(), total, salt);
    std::vector<T> send(total);
    std::vector<T> receive(is_in_place ? 0 : own);
    std::vector<T> all(is_in_place ? 0 : total);
    std::vector<T> scattered(own);
    std::vector<T> reduced(total);
    std::vector<T> left(total);

    T* const extent = is_in_place ? send.data() + begin : receive.data();
    c.copy(send.data(), source.data(), total);
    c.communicator->reduce_scatter(static_cast<T const*>(send.data()), extent, cuts, c.queue,
                                   CollectiveTag{"sums", salt});
    c.copy(scattered.data(), static_cast<T const*>(extent), own);
    c.copy(left.data(), static_cast<T const*>(send.data()), total);
    c.poison(send);
    c.poison(receive);

    T* const whole = is_in_place ? send.data() : all.data();
    c.copy(send.data(), source.data(), total);
    c.communicator->all_reduce(static_cast<T const*>(send.data()), whole, cuts, c.queue,
                               CollectiveTag{"all sums", salt});
    c.copy(reduced.data(), static_cast<T const*>(whole), total);
    c.poison(send);
    c.poison(all);
    c.queue->synchronise();

    std::string const what = std::string(is_in_place ? " in place, " : " ") + to_text(cuts);
    std::vector<T> expected_left = source; // no other rank writes this memory
    if (is_in_place) {
        std::copy(scattered.begin(), scattered.end(),
                  expected_left.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    c.expect_equal(scattered, c.template sums<T>(begin, begin + own, salt),
                   "reduce-scatter" + what);
    c.expect_equal(left, expected_left, "what a reduce-scatter leaves" + what);
    c.expect_equal(reduced, c.template sums<T>(0, total, salt), "all-reduce" + what);
}

template <class T, class C>
void check_gather(Caller<C>& c, std::vector<std::size_t> const& cuts, bool is_in_place) {
    std::size_t const total = cuts.back();
    std::size_t const begin = cuts[c.index()];
    std::size_t const own = cuts[c.index() + 1] - begin;
    std::size_t const salt = ++c.serial;
    std::vector<T> const source = values_of<T>(c.rank(), own, salt);
    std::vector<T> send(is_in_place ? 0 : own);
    std::vector<T> receive(total);
    std::vector<T> gathered(total);

    T* const extent = is_in_place ? receive.data() + begin : send.data();
    c.copy(extent, source.data(), own);
    c.communicator->all_gather(static_cast<T const*>(extent), receive.data(), cuts, c.queue,
                               CollectiveTag{"extents", salt});
    c.copy(gathered.data(), static_cast<T const*>(receive.data()), total);
    c.poison(receive);
    c.poison(send);
    c.queue->synchronise();

    std::vector<T> expected;
    for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
        auto const extent_of_rank =
            values_of<T>(static_cast<int>(rank), cuts[rank + 1] - cuts[rank], salt);
        expected.insert(expected.end(), extent_of_rank.begin(), extent_of_rank.end());
    }
    c.expect_equal(gathered, expected,
                   std::string(is_in_place ? "all-gather in place, " : "all-gather ")
                       + to_text(cuts));
}

/// Checks an exchange: W pieces of the own extent, by rank, and memory that stays as it was.
template <class T, class C>
void check_exchange(Caller<C>& c, std::vector<std::size_t> const& cuts) {
    std::size_t const total = cuts.back();
    std::size_t const begin = cuts[c.index()];
    std::size_t const own = cuts[c.index() + 1] - begin;
    std::size_t const pieces = own * static_cast<std::size_t>(c.world());
    std::size_t const salt = ++c.serial;
    std::vector<T> const source = values_of<T>(c.rank(), total, salt);
    std::vector<T> send(total);
    std::vector<T> receive(pieces);
    std::vector<T> exchanged(pieces);
    std::vector<T> left(total);

    c.copy(send.data(), source.data(), total);
    c.communicator->exchange(static_cast<T const*>(send.data()), receive.data(), cuts, c.queue,
                             CollectiveTag{"pieces", salt});
    c.copy(exchanged.data(), static_cast<T const*>(receive.data()), pieces);
    c.copy(left.data(), static_cast<T const*>(send.data()), total);
    c.poison(send);
    c.poison(receive);
    c.queue->synchronise();

    std::vector<T> expected;
    for (int rank = 0; rank < c.world(); ++rank) {
        auto const of_rank = values_of<T>(rank, total, salt);
        auto const first = of_rank.begin() + static_cast<std::ptrdiff_t>(begin);
        expected.insert(expected.end(), first, first + static_cast<std::ptrdiff_t>(own));
    }
    c.expect_equal(exchanged, expected, "exchange " + to_text(cuts));
    c.expect_equal(left, source, "what an exchange leaves " + to_text(cuts));
}

template <class T, class C>
void check_broadcast(Caller<C>& c, std::size_t elements, int root) {
    std::size_t const salt = ++c.serial;
    std::vector<T> const source = values_of<T>(c.rank(), elements, salt);
    std::vector<T> buffer(elements);
    std::vector<T> received(elements);
    c.copy(buffer.data(), source.data(), elements);
    c.communicator->broadcast(buffer.data(), elements, root, c.queue,
                              CollectiveTag{"values", salt});
    c.copy(received.data(), static_cast<T const*>(buffer.data()), elements);
    c.poison(buffer);
    c.queue->synchronise();
    c.expect_equal(received, values_of<T>(root, elements, salt),
                   "broadcast of " + std::to_string(elements) + " from rank "
                       + std::to_string(root));
}

/// Whether a communicator sums and minimises integers in one collective.
template <class C>
constexpr bool reduces_together = requires(C& communicator, std::int64_t* values,
                                           typename C::Backend::Queue queue) {
    communicator.all_reduce_integers(values, std::size_t{}, std::size_t{}, queue, CollectiveTag{});
};

/// Checks the sums of the first integers and the minima of the others. If there are both, it needs
/// a communicator that reduces them together.
template <class C>
void check_integers(Caller<C>& c, std::size_t sums, std::size_t minima) {
    std::size_t const salt = ++c.serial;
    std::size_t const elements = sums + minima;
    auto const value = [salt](int rank, std::size_t i) {
        return static_cast<std::int64_t>(mix(mix(static_cast<std::uint64_t>(rank) + salt) + i))
               / 16;
    };
    std::vector<std::int64_t> source(elements);
    std::vector<std::int64_t> expected(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        source[i] = value(c.rank(), i);
        expected[i] = value(0, i);
        for (int rank = 1; rank < c.world(); ++rank) {
            expected[i] =
                i < sums ? expected[i] + value(rank, i) : std::min(expected[i], value(rank, i));
        }
    }
    std::vector<std::int64_t> values(elements);
    std::vector<std::int64_t> received(elements);
    c.copy(values.data(), static_cast<std::int64_t const*>(source.data()), elements);
    CollectiveTag const tag{"integers", salt};
    if constexpr (reduces_together<C>) {
        if (salt % 2 == 0 || (sums != 0 && minima != 0)) {
            c.communicator->all_reduce_integers(values.data(), sums, minima, c.queue, tag);
        } else {
            c.communicator->all_reduce_integers(
                values.data(), elements, sums != 0 ? IntegerReduction::sum : IntegerReduction::min,
                c.queue, tag);
        }
    } else {
        c.communicator->all_reduce_integers(
            values.data(), elements, sums != 0 ? IntegerReduction::sum : IntegerReduction::min,
            c.queue, tag);
    }
    c.copy(received.data(), static_cast<std::int64_t const*>(values.data()), elements);
    c.poison(values);
    c.queue->synchronise();
    c.expect_equal(received, expected,
                   "all-reduce of " + std::to_string(sums) + " sums and " + std::to_string(minima)
                       + " minima");
}

/// @name The suite, in functions of a few seconds each
/// @{

template <class Fixture, class T>
void check_sums_of() {
    on_all_ranks<Fixture>([](auto& caller) {
        for (auto const& cuts : families_of_cuts(static_cast<std::size_t>(caller.world()))) {
            check_sums<T>(caller, cuts, false);
            check_sums<T>(caller, cuts, true);
            check_accumulated_sums<T>(caller, cuts);
            check_sums_of_pieces<T>(caller, cuts);
            check_tree_sums<T, float>(caller, cuts);
            check_tree_sums<T, bfloat16>(caller, cuts);
        }
    });
}

template <class Fixture, class... Ts>
void check_gathers_of() {
    on_all_ranks<Fixture>([](auto& caller) {
        for (auto const& cuts : families_of_cuts(static_cast<std::size_t>(caller.world()))) {
            (check_gather<Ts>(caller, cuts, false), ...);
            (check_gather<Ts>(caller, cuts, true), ...);
        }
    });
}

/// For an `ExchangingCommunicator`. Between two exchanges the ranks sum, gather and sum integers,
/// so an exchange that leaves something behind is visible.
template <class Fixture, class... Ts>
void check_exchanges_of() {
    on_all_ranks<Fixture>([](auto& caller) {
        static_assert(ExchangingCommunicator<std::remove_cvref_t<decltype(*caller.communicator)>>);
        for (auto const& cuts : families_of_cuts(static_cast<std::size_t>(caller.world()))) {
            (check_exchange<Ts>(caller, cuts), ...);
            check_sums<float>(caller, cuts, true);
            check_exchange<float>(caller, cuts);
            check_gather<float>(caller, cuts, false);
            check_integers(caller, 3, 0);
        }
    });
}

template <class Fixture, class... Ts>
void check_broadcasts_of() {
    on_all_ranks<Fixture>([](auto& caller) {
        for (int root = 0; root < caller.world(); ++root) {
            (check_broadcast<Ts>(caller, 77, root), ...);
            (check_broadcast<Ts>(caller, 0, root), ...);
        }
    });
}

template <class Fixture>
void check_integer_reductions() {
    on_all_ranks<Fixture>([](auto& caller) {
        for (std::size_t const elements : {0U, 1U, 63U, 64U, 65U, 200U}) {
            for (int turn = 0; turn < 2; ++turn) { // with each of the two operations
                check_integers(caller, elements, 0);
                check_integers(caller, 0, elements);
                check_integers(caller, elements, 0);
            }
        }
        if constexpr (reduces_together<std::remove_cvref_t<decltype(*caller.communicator)>>) {
            for (std::size_t const sums : {1U, 23U, 63U, 64U, 65U}) {
                for (std::size_t const minima : {1U, 4U, 70U}) {
                    check_integers(caller, sums, minima);
                }
            }
        }
    });
}

/// Checks the sums of single numbers, also while a collective of another queue is in progress.
template <class Fixture>
void check_number_sums() {
    on_all_ranks<Fixture>([](auto& caller) {
        auto& communicator = *caller.communicator;
        int const world = caller.world();
        auto const number = [](int rank) { // whose sum depends on the order, and on double
            return rank % 2 == 0 ? 0x1p60 / (rank + 1) : 1.0 / 3.0 + rank;
        };
        double real = 0.0;
        double small = 0.0;
        std::int64_t integer = 0;
        for (int rank = 0; rank < world; ++rank) {
            real += number(rank);
            small += static_cast<double>(0.1F * static_cast<float>(rank + 1));
            integer += (std::int64_t{1} << 40) * (rank - 3) - 1;
        }
        check_gather<float>(caller, families_of_cuts(static_cast<std::size_t>(world)).back(), true);
        std::vector<std::int64_t> busy(1000, caller.rank());
        std::vector<std::int64_t> arrived(busy.size());
        caller.communicator->broadcast(busy.data(), busy.size(), world - 1, caller.queue,
                                       CollectiveTag{"values", 1});
        caller.copy(arrived.data(), static_cast<std::int64_t const*>(busy.data()), busy.size());
        double const real_sum = sum_over_ranks(communicator, number(caller.rank()));
        float const small_sum =
            sum_over_ranks(communicator, 0.1F * static_cast<float>(caller.rank() + 1));
        std::int64_t const integer_sum =
            sum_over_ranks(communicator, (std::int64_t{1} << 40) * (caller.rank() - 3) - 1);
        std::int64_t const large = sum_over_ranks(communicator, 2'000'000'000); // ints
        std::uint64_t const count = sum_over_ranks(communicator, caller.rank() != 0);
        double const not_a_number =
            sum_over_ranks(communicator, caller.rank() == world - 1 ? std::nan("") : 1.0);
        caller.queue->synchronise();
        caller.report->expect(real_sum == real, "the sum of doubles");
        caller.report->expect(small_sum == static_cast<float>(small), "the sum of floats");
        caller.report->expect(integer_sum == integer, "the sum of integers");
        caller.report->expect(large == std::int64_t{2'000'000'000} * world, "the sum of ints");
        caller.report->expect(count + 1 == static_cast<std::uint64_t>(world), "the count of bools");
        caller.report->expect(not_a_number != not_a_number, "a sum with a NaN");
        caller.expect_equal(arrived, std::vector<std::int64_t>(busy.size(), world - 1),
                            "what another queue broadcast meanwhile");
    });
}

/// Checks that an abort of one rank reaches the others with its cause in every collective.
template <class Fixture>
void check_abort() {
    for (int world = 2; world <= largest_world; ++world) {
        Report report;
        bool const is_here = runs_here<Fixture>(world, [&](auto& communicator) {
            host::InlineQueue queue;
            std::int64_t value = 1;
            communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue,
                                             CollectiveTag{"works", 0});
            report.expect(value == world, "the collective before the abort");
            if constexpr (requires { Fixture::meet(world); }) {
                Fixture::meet(world); // one rank may still be inside the collective
            }
            if (communicator.rank() == world - 1) {
                communicator.abort("the reason of rank " + std::to_string(world - 1));
            }
            for (int call = 0; call < 2; ++call) {
                std::string const text = message_of<Aborted>([&] {
                    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue,
                                                     CollectiveTag{"fails", 1});
                });
                report.expect(contains(text, "the reason of rank " + std::to_string(world - 1)),
                              "call " + std::to_string(call) + " after the abort: " + text);
            }
            if constexpr (ExchangingCommunicator<std::remove_cvref_t<decltype(communicator)>>) {
                std::vector<std::size_t> const cuts =
                    families_of_cuts(static_cast<std::size_t>(world)).front();
                std::vector<float> const send(cuts.back());
                std::vector<float> receive(cuts.back()); // the extents are equal
                std::string const text = message_of<Aborted>([&] {
                    communicator.exchange(send.data(), receive.data(), cuts, &queue,
                                          CollectiveTag{"fails", 2});
                });
                report.expect(contains(text, "the reason of rank " + std::to_string(world - 1)),
                              "an exchange after the abort: " + text);
            }
        });
        if (is_here) {
            report.check();
        }
    }
}
/// @}

} // namespace zero::test
