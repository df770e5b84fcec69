#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/comm/recording.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/zero_stage.hpp>

#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <vector>

// A rank that acquires units in another order than the others is named, over transports that
// compare tags and over those that do not.

namespace zero::test::order_agreement_test {

namespace {

/// Counts a rank that has seen what a test asserts, or that threw before. The others wait for it: a
/// rank that fails next aborts what they still wait for.
class Seeing {
public:
    explicit Seeing(std::latch& by_all) noexcept : _by_all(&by_all) {}
    Seeing(Seeing const&) = delete;
    Seeing& operator=(Seeing const&) = delete;
    ~Seeing() { _by_all->count_down(); }

private:
    std::latch* _by_all;
};

constexpr int world = 3;

/// Hides the texts and numbers of tags, like a transport that sends only data.
class Untagged : public Recording<LoopbackCommunicator> {
public:
    using Base = Recording<LoopbackCommunicator>;
    using Base::Base;

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag = {}) {
        Base::reduce_scatter(send, receive, cuts, queue, {});
    }
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag = {}) {
        Base::all_gather(send, receive, cuts, queue, {});
    }
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag = {}) {
        Base::all_reduce_integers(values, elements, reduction, queue, {});
    }
};

std::vector<ParameterSpec> equal_units() {
    std::vector<ParameterSpec> specs;
    for (std::size_t unit = 0; unit < 5; ++unit) {
        specs.push_back({"w" + std::to_string(unit), 192, {unit}, 0, true});
    }
    return specs;
}

template <class Engine>
void run_backward(Engine& engine, std::vector<std::size_t> const& forward) {
    engine.begin_micro_step();
    for (std::size_t const unit : forward) {
        (void)engine.acquire(unit);
    }
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        engine.gradients(unit)[unit][0] += 1.0F;
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
}

template <class Engine>
void step(Engine& engine, std::vector<std::size_t> const& forward) {
    engine.begin_step();
    run_backward(engine, forward);
    (void)engine.step(0.1);
}

/// Runs two steps in the usual order unless `is_first`, then a step in which rank `odd` uses the
/// order `other`, then two usual steps. Returns how each rank ended.
template <class Communicator>
Outcomes deviate(std::vector<std::size_t> const& other, int odd, bool is_first,
                 GatherOptions const& gather = {}) {
    return run_and_observe(world, [&](LoopbackCommunicator& loopback) {
        auto const run = [&](auto& communicator) {
            using Stage = ZeroStage<3, std::remove_reference_t<decltype(communicator)>>;
            Stage engine(communicator, registration<float>(equal_units()), {.gather = gather});
            std::vector<std::size_t> const usual{0, 1, 2, 3, 4};
            for (int steps = is_first ? 2 : 0; steps < 2; ++steps) {
                step(engine, usual);
            }
            step(engine, loopback.rank() == odd ? other : usual);
            for (int steps = 0; steps < 2; ++steps) {
                step(engine, usual);
            }
        };
        if constexpr (std::is_same_v<Communicator, LoopbackCommunicator>) {
            run(loopback);
        } else {
            Communicator communicator(loopback);
            run(communicator);
        }
    });
}

bool has(Outcome const& outcome, std::string const& text) {
    return outcome.message.find(text) != std::string::npos;
}

} // namespace

TEST_CASE("A transport that compares tags names both units and orders on every rank") {
    auto const check = [](Outcomes const& outcomes, int odd, std::string const& usual) {
        for (Outcome const& rank : outcomes.ranks) {
            INFO(rank.message);
            CHECK(rank.type == "CollectiveMismatch");
            CHECK(has(rank, "rank 0 called"));
            CHECK(has(rank, "rank " + std::to_string(odd) + " called"));
            CHECK(has(rank, usual));
            CHECK(has(rank, "for unit 3 after units 0"));
        }
    };
    std::vector<std::size_t> const other{0, 3, 2, 1, 4};
    for (int const odd : {1, 2}) {
        // In the first step unit 1 is gathered on demand; later it was gathered in advance.
        check(deviate<LoopbackCommunicator>(other, odd, true), odd, "for unit 1 after units 0");
        check(deviate<LoopbackCommunicator>(other, odd, false), odd, "for unit 2 after units 0, 1");
        check(deviate<Checked<LoopbackCommunicator>>(other, odd, true), odd,
              "for unit 1 after units 0");
        check(deviate<Checked<LoopbackCommunicator>>(other, odd, false), odd,
              "for unit 2 after units 0, 1");
    }
}

TEST_CASE("Over a transport that compares nothing, all ranks of a first step that differs get both "
          "orders") {
    for (int const odd : {1, 2}) {
        auto const outcomes = deviate<Untagged>({0, 3, 2, 1, 4}, odd, true);
        for (Outcome const& rank : outcomes.ranks) {
            INFO(rank.message);
            CHECK(rank.type == "CollectiveMismatch");
            CHECK(has(rank, "as number 1 of a micro-step rank 0 acquired unit 1 and rank "
                                + std::to_string(odd) + " acquired unit 3"));
            CHECK(has(rank, "rank 0: 0, [1], 2, 3, 4, 4 ..."));
            CHECK(has(rank, "rank " + std::to_string(odd) + ": 0, [3], 2, 1, 4, 4 ..."));
            CHECK(has(rank, "skip(unit) takes the place of acquire where a rank does not use one, "
                            "and gradients_ready(unit) that of its gradients."));
        }
    }
}

TEST_CASE(
    "Over a transport that compares nothing, a rank that leaves the agreed order says so, and "
    "the others are released with its message") {
    // Without prefetch the ranks gather units of equal size in pairs that do not belong together.
    auto const outcomes = deviate<Untagged>({0, 3, 2, 1, 4}, 1, false, {.prefetch_elements = 0});
    INFO(outcomes.ranks[1].message);
    CHECK(outcomes.ranks[1].type == "CollectiveMismatch");
    CHECK(has(outcomes.ranks[1], "rank 1 came to unit 3 as number 1 of its micro-step, where the "
                                 "recorded order has unit 1; its order is 0, [3], 2, 1, 4, 4 ..., "
                                 "the recorded one 0, [1], 2, 3, 4, 4 ..."));
    for (int const other : {0, 2}) {
        CHECK(outcomes.ranks[static_cast<std::size_t>(other)].type == "Aborted");
        CHECK(has(outcomes.ranks[static_cast<std::size_t>(other)], "rank 1 came to unit 3"));
    }
}

TEST_CASE(
    "Over a transport that compares nothing, a rank that alone holds three units at once, and so "
    "gathers equal units in another order, says so") {
    for (std::size_t const held : {1U, 3U}) {
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& loopback) {
            Untagged communicator(loopback);
            ZeroStage<3, Untagged> engine(
                communicator, registration<float>(equal_units()),
                {.extra_leases = 2,
                 .gather = {.prefetch_elements = 3 * 192, .max_reuse_distance = 0}});
            std::vector<std::size_t> const order{0, 1, 2, 3, 4, 0, 0};
            step(engine, order);
            step(engine, order);
            std::vector<float> const before = full_parameters(engine)[0];
            std::vector<Weights<ZeroStage<3, Untagged>::EngineType>> handles;
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            auto const use = [&](std::size_t unit) {
                while (handles.size() >= (loopback.rank() == 1 ? held : 1)) {
                    handles.erase(handles.begin());
                }
                handles.push_back(engine.acquire(unit));
            };
            for (std::size_t const unit : order) {
                use(unit);
            }
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                use(unit);
                engine.gradients(unit)[unit][0] += 1.0F;
                engine.gradients_ready(unit);
            }
            handles.clear();
            engine.end_micro_step();
            bool const is_skipped = engine.step(0.1).report().is_skipped;
            if (is_skipped != (held == 3) || (full_parameters(engine)[0] == before) != is_skipped) {
                throw std::runtime_error("the step was not judged by its gathers");
            }
            engine.begin_step();
            engine.cancel_step();
        });
        Outcome const& odd = outcomes.ranks[1];
        INFO(odd.message);
        CHECK(odd.type == (held == 3 ? "CollectiveMismatch" : "returned"));
        CHECK(has(odd, "rank 1 followed the recorded order and gathered other units than in the "
                       "step before")
              == (held == 3));
        CHECK(has(odd, "hold more than two consecutive units at once on all ranks or on none")
              == (held == 3));
    }
}

TEST_CASE("By option a rank that leaves the recorded order throws before it sends anything") {
    auto const outcomes =
        deviate<Untagged>({0, 3, 2, 1, 4}, 1, false, {.changed_order = ChangedOrder::error});
    CHECK(outcomes.ranks[1].type == "OutOfOrder");
    for (int const other : {0, 2}) {
        Outcome const& rank = outcomes.ranks[static_cast<std::size_t>(other)];
        CHECK(rank.type == "Aborted");
        CHECK(has(rank,
                  "rank 1 acquires unit 3 as number 1 of its micro-step, in the order 0, [3], "
                  "where the recorded order is 0, [1], 2, 3, 4, 4 ..."));
    }
}

TEST_CASE("A step in which the ranks acquired resident units in different orders changes nothing") {
    struct Seen {
        std::vector<std::vector<float>> before, after;
        bool is_skipped = false;
    };
    for (bool const is_odd : {false, true}) {
        std::vector<Seen> ranks(world);
        std::latch seen_by_all(world);
        auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& loopback) {
            std::optional<Seeing> seeing(std::in_place, seen_by_all);
            Untagged communicator(loopback);
            ZeroStage<3, Untagged> engine(communicator, registration<float>(equal_units()),
                                          {.gather = {.persistence_threshold = 192}});
            Seen& seen = ranks[static_cast<std::size_t>(loopback.rank())];
            step(engine, {0, 1, 2, 3, 4});
            seen.before = full_parameters(engine);
            bool const deviates = is_odd && loopback.rank() == 2;
            engine.begin_step();
            engine.begin_micro_step();
            for (std::size_t const unit : {0U, deviates ? 2U : 1U, deviates ? 1U : 2U, 3U, 4U}) {
                (void)engine.acquire(unit);
            }
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const weights = engine.acquire(unit);
                engine.gradients(unit)[unit][0] += 1.0F;
                engine.gradients_ready(unit);
            }
            engine.end_micro_step();
            seen.is_skipped = engine.step(0.1).report().is_skipped;
            seen.after = full_parameters(engine);
            seeing.reset();
            seen_by_all.wait();
            engine.begin_step();
            engine.cancel_step();
        });
        for (Seen const& seen : ranks) {
            CHECK(seen.is_skipped == is_odd);
            CHECK((seen.before == seen.after) == is_odd);
        }
        CHECK(outcomes.ranks[2].type == (is_odd ? "CollectiveMismatch" : "returned"));
    }
}

TEST_CASE("Another order on every rank is no mismatch") {
    auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration<float>(equal_units()));
        step(engine, {0, 1, 2, 3, 4});
        step(engine, {0, 2, 1, 3, 4});
        step(engine, {4, 3, 2, 1, 0});
        step(engine, {4, 3});
        step(engine, {4, 3, 2, 1, 0});
    });
    CHECK(outcomes.rethrown.type == "returned");
}

TEST_CASE(
    "Data ranks of one part of a model that disagree on an order skip the step in all parts") {
    using Ranks = Groups<Untagged, ModelParallel>;
    std::vector<std::string> skipped(4);
    std::latch seen_by_all(4);
    (void)outcome_of([&] {
        run_ranks(4, test_time_out, [&](LoopbackCommunicator& everyone) {
            std::optional<Seeing> seeing(std::in_place, seen_by_all);
            int const rank = everyone.rank();
            auto split_data = everyone.split(rank % 2, rank);
            auto split_model = everyone.split(rank / 2, rank);
            Untagged data(split_data);
            Untagged model(split_model);
            Ranks ranks(data, model);
            ZeroStage<3, Ranks> engine(ranks, registration<float>(equal_units()),
                                       {.gather = {.persistence_threshold = 192}});
            for (int number = 0; number < 3; ++number) {
                bool const deviates = number == 2 && rank == 3;
                step(engine, deviates ? std::vector<std::size_t>{0, 2, 1, 3, 4}
                                      : std::vector<std::size_t>{0, 1, 2, 3, 4});
                skipped[static_cast<std::size_t>(rank)] +=
                    engine.last_report().is_skipped ? "skipped " : "made ";
            }
            seeing.reset();
            seen_by_all.wait();
            engine.begin_step(); // throws on the ranks of the part
        });
    });
    CHECK(skipped == std::vector<std::string>(4, "made made skipped "));
}

TEST_CASE("Ranks that disagree on the order of one engine skip the joint step of all engines") {
    struct Seen {
        std::string skipped, begun;
        bool is_unchanged = false;
    };
    for (bool const is_odd : {false, true}) {
        std::latch seen_by_all(world);
        auto const ranks = on_ranks<Seen>(world, [&](LoopbackCommunicator& loopback) {
            std::optional<Seeing> seeing(std::in_place, seen_by_all);
            Untagged communicator(loopback);
            ZeroStage<3, Untagged> sharded(communicator, registration<float>(equal_units()),
                                           {.gather = {.persistence_threshold = 192}});
            ZeroStage<1> other(loopback, registration<float>(equal_units()));
            JointStep joint(other, sharded);
            Seen seen;
            for (int number = 0; number < 3; ++number) {
                auto const before = full_parameters(other);
                joint.begin_step();
                bool const deviates = is_odd && number == 2 && loopback.rank() == 1;
                run_backward(sharded, deviates ? std::vector<std::size_t>{0, 2, 1, 3, 4}
                                               : std::vector<std::size_t>{0, 1, 2, 3, 4});
                run_backward(other, {0, 1, 2, 3, 4});
                auto const [of_other, of_sharded] = joint.step(0.1);
                seen.skipped += of_other.report().is_skipped ? "skipped" : "made";
                seen.skipped += of_sharded.report().is_skipped ? " skipped, " : " made, ";
                seen.is_unchanged = before == full_parameters(other);
            }
            seeing.reset();
            seen_by_all.wait();
            if (is_odd && loopback.rank() == 1) { // one engine fails, so both break
                seen.begun = outcome_of([&] { joint.begin_step(); }).type;
                seen.begun += " " + outcome_of([&] { other.begin_step(); }).type;
            }
            return seen;
        });
        for (Seen const& seen : ranks) {
            CHECK(seen.is_unchanged == is_odd);
            CHECK(seen.skipped
                  == (is_odd ? "made made, made made, skipped skipped, "
                             : "made made, made made, made made, "));
        }
        CHECK(ranks[1].begun == (is_odd ? "CollectiveMismatch BrokenEngine" : ""));
    }
}

} // namespace zero::test::order_agreement_test
