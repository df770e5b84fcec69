#include "conformance.hpp"

#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/tree_root.hpp"

#include <zero/comm/communicator.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/core/convert.hpp>
#include <zero/core/host_memory_resource.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Two levels of loopback groups. The conformance suite passes for them. If one level has a
// single rank, the bits are those of the flat group.

namespace zero::test::hierarchical_test {

namespace {

using Levels = Hierarchical<LoopbackCommunicator, LoopbackCommunicator>;
static_assert(Communicator<Levels> && !SplittableCommunicator<Levels>
              && !ExchangingCommunicator<Levels>);
static_assert(Communicator<Hierarchical<Levels, LoopbackCommunicator>>); // three levels
static_assert(zero::detail::ReduceScattersInTree<Levels, bfloat16, float>);
static_assert(SplittableCommunicator<LoopbackCommunicator>);
static_assert(!SplittableCommunicator<Recording<LoopbackCommunicator>>);

/// A wrapper that passes everything on, but numbers by rank.
struct NumberedByRank : Recording<Levels> {
    using Recording<Levels>::Recording;
    [[nodiscard]] int position() const noexcept { return rank(); }
};

/// A wrapper that does not pass the position on.
struct WithoutPosition : Recording<LoopbackCommunicator> {
    using Recording<LoopbackCommunicator>::Recording;
    int position() const noexcept = delete;
};
static_assert(zero::detail::HasPosition<Levels>);
static_assert(zero::detail::ReduceScattersInTree<WithoutPosition, float, float>
              && !zero::detail::HasPosition<WithoutPosition>);
static_assert(!zero::detail::ReduceScattersInTree<
              Hierarchical<LoopbackCommunicator, WithoutPosition>, float, float>);

/// Runs `body(communicator, intra, inter)` as rank p = inner * R + outer of each group.
template <class Body>
void run_levels(int inner_ranks, int outer_ranks, HierarchicalOptions const& options,
                Body const& body) {
    run_ranks(inner_ranks * outer_ranks, test_time_out, [&](LoopbackCommunicator& all) {
        LoopbackCommunicator intra = all.split(all.rank() % outer_ranks, all.rank());
        LoopbackCommunicator inter = all.split(all.rank() / outer_ranks, all.rank());
        Levels communicator(intra, inter, options);
        body(communicator, intra, inter);
    });
}

/// @tparam scratch bytes between the groups; if few, a large bucket takes several collectives
template <int divisor, bool is_inner, std::size_t scratch>
struct LevelsFixture {
    inline static std::atomic<int> arrived{0};

    /// Waits for all ranks of the current run, once.
    static void meet(int world) {
        if (++arrived == world) {
            arrived.notify_all();
        }
        for (int seen = arrived; seen < world; seen = arrived) {
            arrived.wait(seen);
        }
    }

    template <class Body>
    static void run(int world, Body const& body) {
        arrived = 0;
        int const part = world % divisor == 0 ? divisor : 1;
        run_levels(is_inner ? part : world / part, is_inner ? world / part : part,
                   {.scratch_bytes = scratch},
                   [&](Levels& communicator, auto&, auto&) { body(communicator); });
    }
};

using TwoInside = LevelsFixture<2, true, 512>;
using TwoBetween = LevelsFixture<2, false, std::size_t{1} << 20U>;

/// The results of every operation on one rank.
std::vector<std::vector<float>> results_of(auto& communicator,
                                           std::vector<std::size_t> const& cuts) {
    host::InlineQueue queue;
    auto const rank = static_cast<std::size_t>(communicator.rank());
    std::vector<float> const send = values_of<float>(communicator.rank(), cuts.back(), 5);
    std::vector<float> own(cuts[rank + 1] - cuts[rank]);
    std::vector<float> sums(cuts.back());
    std::vector<float> all(cuts.back());
    communicator.reduce_scatter(send.data(), own.data(), cuts, &queue, {"own", 0});
    communicator.all_reduce(send.data(), sums.data(), cuts, &queue, {"sums", 0});
    communicator.all_gather(static_cast<float const*>(own.data()), all.data(), cuts, &queue,
                            {"all", 0});
    return {own, sums, all};
}

} // namespace

TEMPLATE_TEST_CASE("Two levels sum in rank order on each level", "", TwoInside, TwoBetween) {
    check_sums_of<TestType, float>();
    check_sums_of<TestType, bfloat16>();
}

TEMPLATE_TEST_CASE("Two levels gather, broadcast and reduce integers", "", TwoInside, TwoBetween) {
    check_gathers_of<TestType, float, std::int64_t, unsigned char>();
    check_broadcasts_of<TestType, float16, std::int64_t>();
    check_integer_reductions<TestType>();
    check_number_sums<TestType>();
    check_abort<TestType>();
}

TEST_CASE("With one rank on a level the bits are those of the flat group, with two they are not") {
    auto const cuts = cuts_of({64, 0, 100, 31});
    std::vector<std::vector<std::vector<float>>> flat(4);
    run_ranks(4, test_time_out, [&](LoopbackCommunicator& communicator) {
        flat[static_cast<std::size_t>(communicator.rank())] = results_of(communicator, cuts);
    });
    for (auto const& [inner, outer] : {std::pair(4, 1), std::pair(1, 4), std::pair(2, 2)}) {
        std::vector<std::vector<std::vector<float>>> found(4);
        run_levels(inner, outer, {}, [&](Levels& communicator, auto&, auto&) {
            found[static_cast<std::size_t>(communicator.rank())] = results_of(communicator, cuts);
        });
        CHECK((found == flat) == (inner != 2));
    }
}

/// Checks the position and a reduce-scatter in a tree of the rank at `position` of 8.
template <class C>
void check_eight(C& communicator, int position, Report& report) {
    host::InlineQueue queue;
    auto const rank = static_cast<std::size_t>(communicator.rank());
    report.expect(communicator.position() == position, "the position");
    auto const cuts = cuts_of({64, 0, 100, 31, 7, 64, 1, 200});
    std::vector<bfloat16> const send = values_of<bfloat16>(position, cuts.back(), 9);
    std::size_t const own = cuts[rank + 1] - cuts[rank];
    std::vector<float> out(own);
    std::vector<float> expected(own);
    communicator.reduce_scatter(send.data(), ops::TreeSum<float>{out.data(), {.rank_group = 8}},
                                cuts, &queue, {"a tree", 0});
    for (std::size_t i = 0; i < own; ++i) {
        std::vector<float> leaves;
        for (int leaf = 0; leaf < 8; ++leaf) {
            leaves.push_back(to_float(value_of<bfloat16>(leaf, cuts[rank] + i, 9)));
        }
        expected[i] = tree_root(leaves, 8);
    }
    report.expect(equal_bits(out, expected), "the sum in a tree");
}

TEST_CASE("Three levels add in the tree, by position, and say which part is no node of it") {
    Report report;
    run_ranks(8, test_time_out, [&](LoopbackCommunicator& all) {
        int const rank = all.rank();
        int const near = rank / 4;       // inner rank of the inner levels
        int const middle = rank / 2 % 2; // their outer rank
        int const far = rank % 2;
        auto a = all.split(rank % 4, rank);
        auto b = all.split(near * 2 + far, rank);
        auto c = all.split(rank / 2, rank);
        int const position = far * 4 + middle * 2 + near;
        {
            Levels inside(a, b, {.scratch_bytes = 512});
            Hierarchical<Levels, LoopbackCommunicator> levels(inside, c, {.scratch_bytes = 256});
            report.expect(levels.rank() == rank, "the rank");
            check_eight(levels, position, report);
            report.expect(levels.inadmissible_ranks({8, 1, 8}) == 0, "a tree of pairs");
            report.expect(levels.inadmissible_ranks({8, 3, 8}) == 2, "the innermost part");
        }
        {
            Levels outside(b, c, {.scratch_bytes = 512});
            Hierarchical<LoopbackCommunicator, Levels> levels(a, outside, {.scratch_bytes = 256});
            report.expect(levels.rank() == rank, "the rank");
            check_eight(levels, position, report);
            report.expect(levels.inadmissible_ranks({8, 8, 8}) == 0, "a tree of one group");
            report.expect(levels.inadmissible_ranks({24, 6, 8}) == 4, "four ranks, the outer part");
        }
    });
    report.check();
}

/// Cannot add in a tree, as NCCL in its own order.
struct Unordered : LoopbackCommunicator {
    [[nodiscard]] std::string_view reason_against_tree() const noexcept { return "no order"; }
};

TEST_CASE(
    "The suite says of a wrapper whose position() is not that of its levels that the tree adds "
    "by others") {
    for (bool const is_wrong : {false, true}) {
        Report report;
        run_levels(2, 2, {}, [&](Levels& levels, auto&, auto&) {
            auto const check = [&](auto& communicator) {
                host::InlineQueue queue;
                Caller<std::remove_reference_t<decltype(communicator)>> caller{
                    &communicator, &queue, &report, "inline"};
                check_tree_sums<float, float>(caller, {0, 64, 128, 192, 256});
            };
            if (is_wrong) {
                NumberedByRank wrapper(levels);
                check(wrapper);
            } else {
                check(levels);
            }
        });
        CHECK(report.text().empty() == !is_wrong);
        CHECK(contains(report.text(), "in another order than position() says (0 1 2 3)")
              == is_wrong);
    }
}

TEST_CASE("Two levels have the reason of a level against a tree") {
    auto groups = LoopbackCommunicator::make_group(2);
    LoopbackCommunicator& plain = groups[0];
    Unordered other{std::move(groups[1])};
    CHECK(Levels(plain, plain).reason_against_tree().empty());
    CHECK((Hierarchical<LoopbackCommunicator, Unordered>(plain, other, {})).reason_against_tree()
          == "no order");
    CHECK((Hierarchical<Unordered, LoopbackCommunicator>(other, plain, {})).reason_against_tree()
          == "no order");
}

TEST_CASE("A single rank makes every call on the inner level, which notices failures") {
    auto group = LoopbackCommunicator::make_group(1);
    auto other = LoopbackCommunicator::make_group(1);
    using Counted = Recording<LoopbackCommunicator>;
    Counted intra(group[0]);
    Counted inter(other[0]);
    Hierarchical<Counted, Counted> communicator(intra, inter);
    auto const queue = HostBackend::default_compute_queue();
    std::vector<std::size_t> const cuts{0, 1};
    float value = 1.0F;
    float const* const sent = &value;
    std::int64_t integers[2] = {1, 2};
    communicator.reduce_scatter(sent, &value, cuts, queue);
    communicator.all_gather(sent, &value, cuts, queue);
    communicator.all_reduce(sent, &value, cuts, queue);
    communicator.broadcast(&value, 1, 0, queue);
    communicator.all_reduce_integers(integers, 2, IntegerReduction::sum, queue);
    communicator.all_reduce_integers(integers, 1, 1, queue);
    for (auto const kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                            CollectiveKind::all_reduce, CollectiveKind::broadcast}) {
        CHECK(intra.recorded()[kind].calls == 1);
        CHECK(inter.recorded()[kind].calls == 0);
    }
    CHECK(intra.recorded()[CollectiveKind::integers].calls == 2);
    CHECK(inter.recorded()[CollectiveKind::integers].calls == 0);
}

TEST_CASE("Each level moves what the formula says") {
    for (auto const& grid :
         {std::pair(2U, 2U), std::pair(4U, 1U), std::pair(1U, 4U), std::pair(2U, 3U)}) {
        std::size_t const inner = grid.first;
        std::size_t const outer = grid.second;
        std::size_t const world = inner * outer;
        std::size_t const elements = 64 * world;
        auto const cuts = cuts_of(std::vector<std::size_t>(world, 64));
        Report report;
        run_levels(
            static_cast<int>(inner), static_cast<int>(outer), {},
            [&](Levels& communicator, LoopbackCommunicator& intra, LoopbackCommunicator& inter) {
                (void)results_of(communicator, cuts); // of the all-reduce, both
                std::size_t const inside = elements * (inner - 1) / inner;
                std::size_t const between = elements * (outer - 1) / (inner * outer);
                auto const moved = [](LoopbackCommunicator const& level) {
                    auto const& count = level.traffic();
                    return count[CollectiveKind::reduce_scatter].elements
                           + count[CollectiveKind::all_gather].elements
                           + count[CollectiveKind::all_reduce].elements;
                };
                auto const gathered = [](LoopbackCommunicator const& level) {
                    return level.traffic()[CollectiveKind::all_gather].elements;
                };
                std::size_t const gathers = inner == 1 || outer == 1 ? 1 : 2;
                report.expect(moved(intra) == 4 * inside, "elements inside");
                report.expect(moved(inter) == 4 * between, "elements between");
                report.expect(gathered(intra) == gathers * inside, "gathered inside");
                report.expect(gathered(inter) == gathers * between, "gathered between");
            });
        report.check();
    }
}

TEST_CASE("Failures and aborts cross levels whose groups know nothing of each other") {
    for (bool const is_abort : {false, true}) {
        std::vector<std::vector<LoopbackCommunicator>> intra;
        std::vector<std::vector<LoopbackCommunicator>> inter;
        for (int group = 0; group < 2; ++group) {
            intra.push_back(LoopbackCommunicator::make_group(2, test_time_out));
            inter.push_back(LoopbackCommunicator::make_group(2, test_time_out));
        }
        Report report;
        zero::detail::run_threads(
            4,
            [&](std::size_t rank) {
                Levels communicator(intra[rank % 2][rank / 2], inter[rank / 2][rank % 2]);
                report.expect(communicator.rank() == static_cast<int>(rank), "the rank");
                host::InlineQueue queue;
                std::int64_t value = 1;
                communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
                report.expect(value == 4, "the sum");
                if (rank == 3 && is_abort) {
                    communicator.abort("rank 3 has a reason");
                }
                std::string const text = message_of<CommunicatorError>([&] {
                    if (rank == 3 && !is_abort) { // the others broadcast
                        communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue,
                                                         {"another operation", 0});
                    }
                    for (int call = 0; call < 2; ++call) {
                        communicator.broadcast(&value, 1, 0, &queue, {"an operation", 0});
                    }
                });
                report.expect(contains(text, is_abort ? "rank 3 has a reason" : "operation"), text);
            },
            [](std::size_t, std::string_view, bool) {});
        report.check();
    }
}

TEST_CASE("Ranks whose calls begin on different levels of one group get CollectiveMismatch instead "
          "of the time-out") {
    Report report;
    run_ranks(4, test_time_out, [&](LoopbackCommunicator& all) {
        int const rank = all.rank();
        LoopbackCommunicator intra = all.split(rank % 2, rank);
        LoopbackCommunicator inter = all.split(rank / 2, rank);
        Levels communicator(intra, inter);
        host::InlineQueue queue;
        std::int64_t value = 1;
        communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
        std::vector<float> values(64);
        std::vector<std::size_t> const cuts{0, 16, 32, 48, 64};
        float* const own = values.data() + cuts[static_cast<std::size_t>(rank)];
        std::string const text = message_of<CollectiveMismatch>([&] {
            if (rank == 0 || rank == 3) { // inside first
                communicator.reduce_scatter(static_cast<float const*>(values.data()), own, cuts,
                                            &queue, {"sums", 1});
            } else { // between first
                communicator.all_gather(static_cast<float const*>(own), values.data(), cuts, &queue,
                                        {"extents", 2});
            }
        });
        report.expect(contains(text, "'sums 1'") && contains(text, "'extents 2'"), text);
    });
    report.check();
}

TEST_CASE("Wrong arguments are refused before anything is sent, and the group goes on") {
    Report report;
    run_levels(2, 2, {}, [&](Levels& communicator, auto&, auto&) {
        host::InlineQueue queue;
        std::vector<float> values(64);
        std::vector<std::size_t> const three{0, 16, 32, 64};
        std::string const text = message_of<InvalidArgument>([&] {
            communicator.all_gather(static_cast<float const*>(values.data()), values.data(), three,
                                    &queue, {"few cuts", 0});
        });
        report.expect(contains(text, "a group of 4 ranks needs 5"), text);
        std::int64_t value = 1;
        communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
        report.expect(value == 4, "the sum afterwards");
    });
    report.check();
}

TEST_CASE(
    "The buffer between the levels is what the communicator says, and comes from its resource") {
    for (auto const& [inner, outer] : {std::pair(2, 2), std::pair(4, 1), std::pair(1, 4)}) {
        std::size_t const bytes = inner == 2 ? 256 : 0;
        Report report;
        run_levels(inner, outer, {}, [&](Levels&, LoopbackCommunicator& intra, auto& inter) {
            HostMemoryResource memory;
            {
                Levels const levels(intra, inter, {.scratch_bytes = 256, .memory = &memory});
                std::size_t const own = memory.allocated_bytes(BufferKind::communicator);
                report.expect(own == bytes, "allocated");
                report.expect(memory.allocated_bytes() == own, "nothing else");
                report.expect(levels.scratch_bytes(1000) == own + 2 * 512, "both levels included");
            }
            report.expect(memory.allocated_bytes() == 0, "freed");
        });
        report.check();
    }
    auto groups = LoopbackCommunicator::make_group(1);
    CHECK_NOTHROW(Levels(groups[0], groups[0], {.scratch_bytes = 100})); // not used
    for (auto const& [inner, outer] : {std::pair(2, 1), std::pair(1, 2)}) {
        CHECK_NOTHROW(
            run_levels(inner, outer, {.scratch_bytes = 100}, [](Levels&, auto&, auto&) {}));
    }
    auto const outcome =
        outcome_of([] { run_levels(2, 2, {.scratch_bytes = 100}, [](Levels&, auto&, auto&) {}); });
    CHECK(outcome.type == "InvalidArgument");
    CHECK(contains(outcome.message, "scratch_bytes of a Hierarchical communicator is 100"));
}

} // namespace zero::test::hierarchical_test
