// What `TreeReduction` refuses is refused on every rank with its numbers, before anything of the
// model is sent.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/comm/recording.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::tree_refusals_test {

namespace {

using Counted = Recording<LoopbackCommunicator>;
using Levels = Hierarchical<Counted, Counted>;
template <int N, class C = Counted>
using Stage = ZeroStage<N, TreeReduction<>, C>;

/// How a rank was refused, and what it had sent by then.
struct Refusal {
    Outcome outcome;
    TrafficCount sent;
};

/// Keeps what a communicator recorded when a body ends, also with an exception.
struct Keep {
    Counted const& communicator;
    TrafficCount& sent;
    ~Keep() { sent = communicator.recorded(); }
};

bool is_nothing(TrafficCount const& sent) {
    return sent.kinds == TrafficCount{}.kinds;
}

bool names(std::string const& message, std::vector<std::size_t> const& numbers) {
    for (std::size_t const number : numbers) {
        if (message.find(' ' + std::to_string(number)) == std::string::npos
            && message.find('(' + std::to_string(number)) == std::string::npos) {
            return false;
        }
    }
    return true;
}

/// The trees of the draws, with the rule as the documentation states it.
struct Tree {
    std::size_t micro_batches;
    std::size_t group;

    [[nodiscard]] bool is_valid() const { return micro_batches % group == 0; }
    [[nodiscard]] bool admits(std::size_t world) const {
        bool is_power = false;           // of two, and a divisor of the group
        bool is_group_and_power = false; // the group times a power of two
        for (std::size_t power = 1; power <= world; power *= 2) {
            is_power = is_power || (world == power && group % power == 0);
            is_group_and_power = is_group_and_power || world == group * power;
        }
        return micro_batches % world == 0 && (is_power || is_group_and_power);
    }
    /// Lists the numbers of ranks that divide `whole`.
    [[nodiscard]] std::string possible(std::size_t whole) const {
        std::string list;
        for (std::size_t world = 1; world <= whole; ++world) {
            if (whole % world == 0 && admits(world)) {
                list += (list.empty() ? "" : ", ") + std::to_string(world);
            }
        }
        return list;
    }
};

Tree drawn_tree(std::mt19937_64& random) {
    std::size_t const group = 1 + random() % 6;
    bool const divides = random() % 8 != 0;
    return {divides ? group * (1 + random() % 12) : 1 + random() % 72, group};
}

template <class Options>
void set(Options& options, Tree const& tree) {
    options.reduction.micro_batches = tree.micro_batches;
    options.reduction.micro_batch_group = tree.group;
}

/// Calls `body(communicator)`. Exceptions that leave it end the rank, as in a program.
template <class Body>
std::vector<Refusal> refusals_of(int world, Body const& body) {
    std::vector<Refusal> refusals(static_cast<std::size_t>(world));
    auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& loopback) {
        Counted communicator(loopback);
        Keep const keep{communicator, refusals[static_cast<std::size_t>(loopback.rank())].sent};
        body(communicator);
    });
    for (std::size_t rank = 0; rank < refusals.size(); ++rank) {
        refusals[rank].outcome = outcomes.ranks[rank];
    }
    return refusals;
}

} // namespace

TEST_CASE("A number of ranks that is no part of the tree is refused on every rank with the numbers "
          "before anything is sent") {
    std::mt19937_64 random(361);
    std::size_t refused = 0;
    std::size_t invalid = 0;
    std::size_t accepted = 0;
    for (int draw = 0; draw < 150; ++draw) {
        Tree const tree = drawn_tree(random);
        std::size_t const world = 1 + random() % 8;
        auto const stage = static_cast<int>(random() % 4);
        INFO("V = " << tree.micro_batches << ", b = " << tree.group << ", W = " << world
                    << ", stage " << stage);
        auto const ranks = refusals_of(static_cast<int>(world), [&](Counted& communicator) {
            with_stage(stage, [&]<int N>() {
                typename Stage<N>::Options options;
                set(options, tree);
                Stage<N> const engine(communicator, registration<float>(toy_specs()), options);
            });
        });
        bool const is_accepted = tree.is_valid() && tree.admits(world);
        ++(is_accepted ? accepted : tree.is_valid() ? refused : invalid);
        for (Refusal const& rank : ranks) {
            CHECK(rank.outcome.type == (is_accepted ? "returned" : "InvalidArgument"));
            CHECK(is_nothing(rank.sent) == (!is_accepted));
            if (is_accepted) {
                continue;
            }
            CHECK(names(rank.outcome.message, {tree.micro_batches, tree.group}));
            if (tree.is_valid()) {
                CHECK_THAT(rank.outcome.message, contains_text("zero: " + std::to_string(world)
                                                               + " ranks cannot add the tree"));
                CHECK_THAT(rank.outcome.message,
                           contains_text("possible numbers of ranks are "
                                         + tree.possible(tree.micro_batches) + ". "));
            }
        }
    }
    CHECK(refused > 30);
    CHECK(invalid > 5);
    CHECK(accepted > 30);
}

TEST_CASE("Inner ranks that are no part of the tree are refused on every rank with the numbers "
          "before anything is sent on either level") {
    std::mt19937_64 random(362);
    std::size_t refused = 0;
    std::size_t accepted = 0;
    for (int draw = 0; draw < 150; ++draw) {
        Tree const tree = drawn_tree(random);
        std::size_t const inner = 1 + random() % 4;
        std::size_t const outer = 1 + random() % 3;
        std::size_t const world = inner * outer;
        INFO("V = " << tree.micro_batches << ", b = " << tree.group << ", " << inner << " x "
                    << outer << " ranks");
        std::vector<TrafficCount> sent(2 * world);
        auto const outcomes =
            run_and_observe(static_cast<int>(world), [&](LoopbackCommunicator& parent) {
                auto const levels = static_cast<int>(outer);
                auto inside = parent.split(parent.rank() % levels, parent.rank());
                auto between = parent.split(parent.rank() / levels, parent.rank());
                Counted intra(inside);
                Counted inter(between);
                auto const rank = static_cast<std::size_t>(parent.rank());
                Keep const keeps[] = {{intra, sent[2 * rank]}, {inter, sent[2 * rank + 1]}};
                Levels communicator(intra, inter);
                intra.reset_recorded();
                inter.reset_recorded();
                Stage<2, Levels>::Options options;
                set(options, tree);
                Stage<2, Levels> const engine(communicator, registration<float>(toy_specs()),
                                              options);
            });
        bool const is_accepted = tree.is_valid() && tree.admits(world) && tree.admits(inner);
        ++(is_accepted ? accepted : refused);
        for (std::size_t rank = 0; rank < world; ++rank) {
            auto const& outcome = outcomes.ranks[rank];
            CHECK(outcome.type == (is_accepted ? "returned" : "InvalidArgument"));
            CHECK((is_nothing(sent[2 * rank]) && is_nothing(sent[2 * rank + 1])) == !is_accepted);
            if (is_accepted) {
                continue;
            }
            CHECK(names(outcome.message, {tree.micro_batches, tree.group}));
            if (tree.is_valid() && tree.admits(world)) {
                CHECK_THAT(outcome.message, contains_text("has " + std::to_string(inner) + " of "
                                                          + std::to_string(world) + " ranks"));
                CHECK_THAT(outcome.message, contains_text("possible numbers of inner ranks are "
                                                          + tree.possible(world) + ". "));
            }
        }
    }
    CHECK(refused > 50);
    CHECK(accepted > 30);
}

TEST_CASE("A rank with another tree: every rank learns both numbers, and nothing of the model was "
          "sent") {
    std::mt19937_64 random(363);
    std::size_t inadmissible = 0;
    for (int draw = 0; draw < 60; ++draw) {
        std::size_t const world = 2 + random() % 3;
        std::size_t const odd = random() % world;
        Tree const tree{world * 12, world};
        Tree other = tree;
        if (random() % 2 == 0) {
            other.micro_batches = 1 + random() % 60;
        } else {
            other.group = 1 + random() % 12;
        }
        if (other.micro_batches == tree.micro_batches && other.group == tree.group) {
            continue;
        }
        bool const is_possible = other.is_valid() && other.admits(world);
        inadmissible += is_possible ? 0 : 1;
        auto const stage = static_cast<int>(random() % 4);
        INFO("V = " << tree.micro_batches << ", b = " << tree.group << ", W = " << world
                    << ", stage " << stage << "; rank " << odd << ": V = " << other.micro_batches
                    << ", b = " << other.group);
        auto const ranks_with = [&](std::size_t elements) {
            return refusals_of(static_cast<int>(world), [&](Counted& communicator) {
                with_stage(stage, [&]<int N>() {
                    typename Stage<N>::Options options;
                    bool const is_odd = static_cast<std::size_t>(communicator.rank()) == odd;
                    set(options, is_odd ? other : tree);
                    Stage<N> const engine(
                        communicator,
                        registration<float>({{"a", elements, {0}}, {"b", elements, {1}}}), options);
                });
            });
        };
        auto const ranks = ranks_with(100);
        auto const of_large = ranks_with(10000);
        for (std::size_t rank = 0; rank < world; ++rank) {
            auto const& [outcome, sent] = ranks[rank];
            CHECK(outcome.type
                  == (is_possible   ? "LayoutMismatch"
                      : rank == odd ? "InvalidArgument"
                                    : "Aborted"));
            if (is_possible) { // both numbers of each option that differs
                bool const is_count = other.micro_batches != tree.micro_batches;
                std::size_t const first = is_count ? tree.micro_batches : tree.group;
                std::size_t const second = is_count ? other.micro_batches : other.group;
                auto const pair = odd == 0 ? std::pair(second, first) : std::pair(first, second);
                CHECK_THAT(outcome.message,
                           contains_text(std::string(is_count ? "'reduction.micro_batches' ("
                                                              : "'reduction.micro_batch_group' (")
                                         + std::to_string(pair.first) + " and "
                                         + std::to_string(pair.second) + ")"));
            } else {
                CHECK(names(outcome.message, {other.micro_batches, other.group}));
            }
            // only the comparison of options, whose size does not depend on that of the model
            for (auto const kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_reduce,
                                    CollectiveKind::broadcast, CollectiveKind::exchange}) {
                CHECK(sent[kind].calls == 0);
            }
            CHECK(sent[CollectiveKind::all_gather]
                  == of_large[rank].sent[CollectiveKind::all_gather]);
        }
    }
    CHECK(inadmissible > 10);
}

TEST_CASE(
    "A step with another number of micro-steps is refused on every rank with the numbers, and "
    "nothing more is sent") {
    constexpr int world = 2;
    constexpr std::size_t micro_batches = 6; // 3 micro-steps
    in_every_stage([&]<int N>() {
        auto const ranks_that = [&](auto const& prepare, auto const& refused) {
            return refusals_of(world, [&](Counted& communicator) {
                typename Stage<N>::Options options;
                options.reduction.micro_batches = micro_batches;
                Stage<N> engine(communicator, registration<float>(toy_specs()), options);
                engine.begin_step();
                prepare(engine, static_cast<std::uint64_t>(communicator.rank()));
                communicator.reset_recorded();
                refused(engine);
            });
        };
        auto const make = [](std::size_t count) {
            return [count](auto& engine, std::uint64_t rank) {
                for (std::size_t micro_step = 0; micro_step < count; ++micro_step) {
                    engine.begin_micro_step();
                    run_micro_step(engine, rank, 0, micro_step);
                    engine.end_micro_step();
                }
            };
        };
        auto const check = [&](char const* call, std::size_t count,
                               std::vector<Refusal> const& ranks) {
            INFO("stage " << N << ", " << call << " with " << count);
            for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
                CHECK(ranks[rank].outcome.type == "OutOfOrder");
                CHECK(ranks[rank].outcome.message
                      == "zero: " + std::string(call) + " with " + std::to_string(count)
                             + " micro-steps, but reduction.micro_batches = 6 on 2 ranks are 3 in "
                               "every step; make exactly these (rank "
                             + std::to_string(rank) + ").");
                CHECK(is_nothing(ranks[rank].sent));
            }
        };
        for (std::size_t const count : {1U, 2U, 4U, 6U}) {
            check("micro_steps()", count,
                  ranks_that(make(0), [&](auto& engine) { (void)engine.micro_steps(count); }));
        }
        for (std::size_t const made : {0U, 1U}) {
            check("begin_micro_step()", made + 1, ranks_that(make(made), [](auto& engine) {
                      engine.begin_micro_step(MicroStep::last);
                  }));
        }
        check("begin_micro_step()", 4,
              ranks_that(make(3), [](auto& engine) { engine.begin_micro_step(); }));
        for (std::size_t const made : {1U, 2U}) {
            check("step()", made,
                  ranks_that(make(made), [](auto& engine) { (void)engine.step(0.1); }));
            check("gradient_norms()", made,
                  ranks_that(make(made), [](auto& engine) { (void)engine.gradient_norms(); }));
        }
        // a control: the step that is meant sends
        for (Refusal const& rank :
             ranks_that(make(3), [](auto& engine) { (void)engine.step(0.1).report(); })) {
            CHECK(rank.outcome == Outcome{});
            CHECK_FALSE(is_nothing(rank.sent));
        }
    });
}

TEST_CASE("If one rank makes another number of micro-steps, the others learn its numbers") {
    in_every_stage([&]<int N>() {
        INFO("stage " << N);
        auto const ranks = refusals_of(2, [&](Counted& communicator) {
            typename Stage<N>::Options options;
            options.reduction.micro_batches = 6;
            Stage<N> engine(communicator, registration<float>(toy_specs()), options);
            engine.begin_step();
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            for (std::size_t micro_step = 0; micro_step < (rank == 0 ? 3U : 2U); ++micro_step) {
                engine.begin_micro_step();
                run_micro_step(engine, rank, 0, micro_step);
                engine.end_micro_step();
            }
            (void)engine.step(0.1).report();
        });
        std::string const text =
            "step() with 2 micro-steps, but reduction.micro_batches = 6 on 2 ranks are 3";
        CHECK(ranks[1].outcome.type == "OutOfOrder");
        CHECK_THAT(ranks[1].outcome.message, contains_text(text));
        CHECK(ranks[0].outcome.type == "Aborted");
        CHECK_THAT(ranks[0].outcome.message, contains_text(text));
    });
}

} // namespace zero::test::tree_refusals_test
