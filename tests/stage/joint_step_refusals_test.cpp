// Engines that cannot decide together are refused in a sentence, an error in one call leaves all of
// them unchanged, and a failure in one breaks all.

#include "support/catch.hpp"
#include "support/leaky_backend.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"
#include "support/toy_model.hpp"

#include <zero/host/delaying_queue.hpp>
#include <zero/host/host_backend.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/zero.hpp>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::joint_step_refusals_test {

namespace {

template <class Stage>
std::vector<typename Stage::Registration> one_parameter(char const* name) {
    std::vector<typename Stage::Registration> parameters(1);
    parameters[0].name = name;
    parameters[0].elements = 70;
    return parameters;
}

template <class Engine>
void run_micro_steps(Engine& engine, std::size_t count, float value = 1.0F) {
    for (std::size_t i = 0; i < count; ++i) {
        engine.begin_micro_step();
        auto const gradients = engine.gradients(0);
        for (float& element : gradients[0]) {
            element += value * engine.loss_scale();
        }
        engine.gradients_ready(0);
        engine.end_micro_step();
    }
}

/// How the constructor ends for two engines with these options.
template <class Stage = ZeroStage<2>>
std::string refusal(typename Stage::Options const& first, typename Stage::Options const& other) {
    return on_ranks<Outcome>(1,
                             [&](LoopbackCommunicator& ranks) {
                                 Stage a(ranks, one_parameter<Stage>("a"), first);
                                 Stage b(ranks, one_parameter<Stage>("b"), other);
                                 return outcome_of([&] { JointStep const joint(a, b); });
                             })[0]
        .message;
}

bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

template <class Engine>
std::vector<float> values_of(Engine& engine) {
    return full_parameters(engine)[0];
}

} // namespace

TEST_CASE("Engines whose options decide differently are refused by the name of the option") {
    CHECK(refusal({}, {}).empty());
    using S = ZeroStage<2>;
    std::vector<std::pair<std::string, S::Options>> const others{
        {"'gradient_clipping'", {.gradient_clipping = 1.0F}},
        {"'skip_above_norm'", {.skip_above_norm = {.limit = 2.0F}}},
        {"'non_finite'", {.non_finite = NonFinite::step}},
        {"'skip_limit'", {.skip_limit = 5}},
        {"'reduction.kind'", {.reduction = {.kind = ReductionKind::sum}}},
        {"'reduction.predivide'", {.reduction = {.predivide = 2.0F}}}};
    for (auto const& [name, options] : others) {
        CAPTURE(name);
        std::string const message = refusal({}, options);
        CHECK(contains(message, "engines 0 and 1 differ in " + name));
        CHECK(contains(message, "give all the same (rank "));
    }
    using Scaled = ZeroStage<2, StaticLossScaler>;
    CHECK(contains(
        refusal<Scaled>({.loss_scaler = {.scale = 2.0F}}, {.loss_scaler = {.scale = 4.0F}}),
        "'loss_scaler'"));
    // These do not decide.
    CHECK(refusal({}, {.report = {.group_norms = true}, .optimizer = {.beta1 = 0.5F}}).empty());
}

TEST_CASE("An engine that is given twice is refused") {
    auto const outcomes = on_ranks<Outcome>(1, [](LoopbackCommunicator& ranks) {
        ZeroStage<2> a(ranks, one_parameter<ZeroStage<2>>("a"));
        ZeroStage<2> b(ranks, one_parameter<ZeroStage<2>>("b"));
        return outcome_of([&] { JointStep const joint(b, a, a); });
    });
    CHECK(outcomes[0].type == "InvalidArgument");
    CHECK(contains(outcomes[0].message, "engines 1 and 2 are the same"));
}

TEST_CASE("An engine that made steps alone, or is in another joint step, is refused") {
    auto const outcomes = on_ranks<std::vector<Outcome>>(2, [](LoopbackCommunicator& ranks) {
        ZeroStage<2> a(ranks, one_parameter<ZeroStage<2>>("a"));
        ZeroStage<2> b(ranks, one_parameter<ZeroStage<2>>("b"));
        ZeroStage<2> c(ranks, one_parameter<ZeroStage<2>>("c"));
        std::vector<Outcome> found;
        {
            JointStep const joint(a, b);
            found.push_back(outcome_of([&] { JointStep const second(b, c); }));
        }
        a.begin_step();
        run_micro_steps(a, 1);
        a.step(0.5); // no joint step lives
        found.push_back(outcome_of([&] { JointStep const joint(a, b); }));
        return found;
    });
    for (auto const& rank : outcomes) {
        CHECK(rank[0].type == "OutOfOrder");
        CHECK(contains(rank[0].message, "engine 0 belongs to another one"));
        CHECK(rank[1].type == "InvalidArgument");
        CHECK(contains(rank[1].message, "'steps since construction' (1 and 0)"));
    }
}

TEST_CASE("Engines over other numbers of data ranks are refused with the remedy for experts") {
    auto const outcomes = on_ranks<Outcome>(4, [](LoopbackCommunicator& everyone) {
        auto half = everyone.split(everyone.rank() % 2, everyone.rank());
        ZeroStage<2> dense(everyone, one_parameter<ZeroStage<2>>("a"));
        ZeroStage<2> experts(half, one_parameter<ZeroStage<2>>("b"));
        return outcome_of([&] { JointStep const joint(dense, experts); });
    });
    for (Outcome const& rank : outcomes) {
        CHECK(rank.type == "InvalidArgument");
        CHECK(contains(rank.message, "'data ranks' (4 and 2)"));
        CHECK(contains(rank.message, "zero::Groups<C, zero::Experts>"));
    }
}

TEST_CASE("An error in the call of one engine leaves all unchanged") {
    struct Seen {
        std::vector<std::string> errors;
        std::vector<float> first, other;
        std::uint64_t steps = 0;
    };
    auto const seen = on_ranks<Seen>(2, [](LoopbackCommunicator& ranks) {
        using Scaled = ZeroStage<2, DynamicLossScaler>;
        Scaled a(ranks, one_parameter<Scaled>("a"));
        ZeroStage<3, DynamicLossScaler> b(ranks,
                                          one_parameter<ZeroStage<3, DynamicLossScaler>>("b"));
        JointStep joint(a, b);
        Seen result;
        auto const refused = [&](auto const& call) {
            Outcome const outcome = outcome_of(call);
            result.errors.push_back(outcome.type + ": " + outcome.message);
        };
        a.begin_step();
        run_micro_steps(a, 2);
        refused([&] { joint.step(0.5); });    // b has not begun
        refused([&] { joint.begin_step(); }); // a has, and b does not
        b.begin_step();
        run_micro_steps(b, 1);
        refused([&] { joint.step(0.5); }); // a mean over 2 and over 1
        run_micro_steps(b, 1);
        refused([&] { joint.step(std::numeric_limits<double>::quiet_NaN()); });
        refused([&] { joint.step(0.5, 3); });
        auto const tickets = joint.step(0.5);
        result.steps = std::get<1>(tickets).report().step_count;
        result.first = values_of(a);
        result.other = values_of(b);
        b.set_loss_scale(8.0F);
        joint.begin_step();
        run_micro_steps(a, 1);
        run_micro_steps(b, 1);
        refused([&] { joint.step(0.5); });
        a.cancel_step();
        b.cancel_step();
        a.set_loss_scale(8.0F);
        joint.begin_step();
        run_micro_steps(a, 1);
        run_micro_steps(b, 1);
        joint.step(0.5);
        a.begin_step();
        run_micro_steps(a, 1);
        refused([&] { a.step(0.5); });
        a.cancel_step();
        return result;
    });
    for (Seen const& rank : seen) {
        REQUIRE(rank.errors.size() == 7);
        CHECK(contains(rank.errors[0], "OutOfOrder: zero: step() outside a step"));
        CHECK(contains(rank.errors[0], "It is engine 1 of the JointStep."));
        CHECK(contains(rank.errors[1], "OutOfOrder: zero: begin_step() inside a step"));
        CHECK(contains(rank.errors[2], "differ in 'micro-steps' (2 and 1)"));
        CHECK(contains(rank.errors[3], "InvalidArgument: zero: the learning rate is"));
        CHECK(contains(rank.errors[4], "InvalidArgument: zero: step() got a weight"));
        CHECK(contains(rank.errors[5], "'state of the loss scaler'"));
        CHECK(contains(rank.errors[6], "OutOfOrder: zero: step() of an engine of a JointStep"));
        CHECK(rank.steps == 1);
        CHECK(rank.first == rank.other); // 70 equal gradients in a and b
        CHECK(rank.first[0] == -0.5F);   // the first update of AdamW
    }
}

TEST_CASE("No engine has begun a step that another refuses because its memory has moved") {
    auto const found = on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& ranks) {
        using Stage = ZeroStage<2>;
        std::vector<float> gradient(70);
        std::vector<float> other(70);
        float* now = gradient.data();
        auto parameters = one_parameter<Stage>("b");
        parameters[0].gradient = gradient.data();
        Stage a(ranks, one_parameter<Stage>("a"));
        Stage b(ranks, parameters, {.current_memory = [&](std::size_t) {
                    return CurrentMemory{.gradient = now, .elements = 70};
                }});
        JointStep joint(a, b);
        now = other.data();
        std::vector<std::string> own{outcome_of([&] { joint.begin_step(); }).message};
        now = gradient.data();
        joint.begin_step();
        a.cancel_step();
        b.cancel_step();
        return own;
    })[0];
    CHECK_THAT(found[0], contains_text("'b'") && contains_text("engine 1 of the JointStep"));
}

TEST_CASE("A refused step of one engine, on one rank, leaves the joint step as it is") {
    auto const all = on_ranks<std::vector<Outcome>>(2, [](LoopbackCommunicator& ranks) {
        using Stage = ZeroStage<2>;
        Stage a(ranks, one_parameter<Stage>("a"));
        Stage b(ranks, one_parameter<Stage>("b"));
        JointStep joint(a, b);
        joint.begin_step();
        run_micro_steps(a, 1);
        run_micro_steps(b, 1);
        std::vector<Outcome> outcomes;
        if (ranks.rank() == 0) {
            outcomes.push_back(outcome_of([&] { a.step(0.1, [](auto const&) {}); }));
            outcomes.push_back(outcome_of([&] { b.step(0.1); }));
        }
        outcomes.push_back(outcome_of([&] { joint.step(0.1); }));
        outcomes.push_back(outcome_of([&] { (void)a.step_count(); }));
        return outcomes;
    });
    REQUIRE(all[0].size() == 4);
    CHECK(all[0][0].type == "OutOfOrder");
    CHECK(all[0][1].type == "OutOfOrder");
    CHECK(all[0][2] == Outcome{});
    CHECK(all[0][3] == Outcome{});
    CHECK(all[1] == std::vector<Outcome>(2));
}

TEST_CASE("Too many skipped steps throw once for all engines, which may go on") {
    auto const seen = on_ranks<std::vector<std::string>>(2, [](LoopbackCommunicator& ranks) {
        using S = ZeroStage<2>;
        S a(ranks, one_parameter<S>("a"), {.skip_limit = 2});
        S b(ranks, one_parameter<S>("b"), {.skip_limit = 2});
        JointStep joint(a, b);
        std::vector<std::string> ends;
        for (int step = 0; step < 6; ++step) {
            Outcome const begun = outcome_of([&] { joint.begin_step(); });
            ends.push_back(begun.type);
            if (begun.type == "returned") {
                run_micro_steps(a, 1);
                run_micro_steps(b, 1, step < 3 ? std::numeric_limits<float>::infinity() : 1.0F);
                auto const [of_a, of_b] = joint.step(0.5);
                ends.back() = of_a.report().is_skipped ? "skipped" : "updated";
            }
        }
        return ends;
    });
    std::vector<std::string> const expected{"skipped",      "skipped", "skipped",
                                            "TooManySkips", "updated", "updated"};
    CHECK(seen[0] == expected);
    CHECK(seen[1] == expected);
}

TEST_CASE("An error names the element that is not finite, whichever engine holds it") {
    for (bool const is_first : {true, false}) {
        auto const seen = on_ranks<Outcome>(2, [&](LoopbackCommunicator& ranks) {
            using S = ZeroStage<2>;
            S a(ranks, one_parameter<S>("a"), {.non_finite = NonFinite::throw_error});
            S b(ranks, one_parameter<S>("b"), {.non_finite = NonFinite::throw_error});
            JointStep joint(a, b);
            joint.begin_step();
            constexpr float infinite = std::numeric_limits<float>::infinity();
            run_micro_steps(a, 1, is_first ? infinite : 1.0F);
            run_micro_steps(b, 1, is_first ? 1.0F : infinite);
            Outcome const end = outcome_of([&] { joint.step(0.5); });
            joint.begin_step(); // nothing is broken
            run_micro_steps(a, 1);
            run_micro_steps(b, 1);
            joint.step(0.5);
            return end;
        });
        for (Outcome const& rank : seen) {
            CHECK(rank.type == "NonFiniteGradients");
            CHECK(contains(rank.message,
                           is_first ? "element 0 of parameter 'a'" : "element 0 of parameter 'b'"));
        }
    }
}

TEST_CASE("A failure in one engine breaks all and reaches the ranks of both") {
    auto const seen = on_ranks<std::vector<std::string>>(3, [](LoopbackCommunicator& everyone) {
        auto first = everyone.split(0, everyone.rank());
        auto other = everyone.split(0, everyone.rank());
        using S = ZeroStage<2>;
        S a(first, one_parameter<S>("a"));
        S b(other, one_parameter<S>("b"));
        JointStep joint(a, b);
        joint.begin_step();
        run_micro_steps(a, 1);
        run_micro_steps(b, 1);
        std::vector<std::string> ends;
        if (everyone.rank() == 1) { // another rate: b's collectives are never reached
            ends.push_back(outcome_of([&] { joint.step(0.25); }).type);
        } else {
            ends.push_back(outcome_of([&] { joint.step(0.5); }).type);
        }
        ends.push_back(outcome_of([&] { a.begin_step(); }).type);
        ends.push_back(outcome_of([&] { b.begin_step(); }).type);
        return ends;
    });
    for (auto const& rank : seen) {
        CHECK(rank
              == std::vector<std::string>{"CollectiveMismatch", "BrokenEngine", "BrokenEngine"});
    }
}

TEST_CASE("A step whose decision failed in one engine changes nothing in the others") {
    for (bool const is_first : {true, false}) {
        auto const seen = on_ranks<std::vector<float>>(2, [&](LoopbackCommunicator& everyone) {
            auto first = everyone.split(0, everyone.rank());
            auto other = everyone.split(0, everyone.rank());
            host::ThreadedQueue queue;
            host::ThreadedQueue compute; // so that no step waits for its update
            using S = ZeroStage<2>;
            S a(first, one_parameter<S>("a"),
                {.compute_queue = &compute, .communication_queue = &queue});
            S b(other, one_parameter<S>("b"), {.compute_queue = &compute});
            auto const pass = [&](S& engine, float value) {
                engine.begin_micro_step();
                auto const gradients = engine.gradients(0);
                compute.record().synchronise();
                for (float& element : gradients[0]) {
                    element += value;
                }
                engine.gradients_ready(0);
                engine.end_micro_step();
            };
            auto const train = [&](S& hub, S& spoke) {
                JointStep joint(hub, spoke);
                for (int step = 0; step < 2; ++step) {
                    joint.begin_step();
                    pass(a, 1.0F);
                    pass(b, 1.0F);
                    std::atomic<bool> is_enqueued{false};
                    queue.enqueue([&is_enqueued, step] {
                        is_enqueued.wait(false);
                        if (step == 1) {
                            throw std::runtime_error("a's queue failed");
                        }
                    });
                    joint.step(0.5);
                    is_enqueued = true;
                    is_enqueued.notify_one();
                    queue.record().synchronise();
                }
            };
            is_first ? train(a, b) : train(b, a);
            std::vector<float> values;
            b.for_each_owned_slice([&](auto const& slice) {
                values.insert(values.end(), slice.values.begin(), slice.values.end());
            });
            return values;
        });
        for (auto const& rank : seen) {
            for (float const value : rank) {
                CHECK(value == -0.5F); // after the first step
            }
        }
        CHECK(seen[0].size() + seen[1].size() == 70);
    }
}

namespace {

/// Returns whether queues that delay give other norms than those of one engine.
bool differs(int missing, std::uint64_t seed) {
    constexpr std::size_t steps = 6;
    std::atomic<int> wrong{0};
    LeakyBackend::missing = missing;
    run_ranks<Loopback<LeakyBackend>>(2, test_time_out, [&](Loopback<LeakyBackend>& ranks) {
        using S = ZeroStage<1, Loopback<LeakyBackend>>;
        auto const rank = static_cast<std::uint64_t>(ranks.rank());
        host::DelayingQueue first(seed * 4 + rank, 300);
        host::DelayingQueue other(seed * 4 + rank + 2, 300);
        S a(ranks, one_parameter<S>("a"), {.communication_queue = &first});
        S b(ranks, one_parameter<S>("b"), {.communication_queue = &other});
        JointStep joint(a, b);
        for (std::size_t step = 0; step < steps; ++step) {
            joint.begin_step();
            auto const size = static_cast<float>(step + 1);
            run_micro_steps(a, 1, 3.0F * size);
            run_micro_steps(b, 1, 4.0F * size);
            auto const [of_a, of_b] = joint.step(0.5);
            double const norm = std::sqrt(70.0) * 5.0 * static_cast<double>(size);
            double const found_a = of_a.report().gradient_norm;
            double const found_b = of_b.report().gradient_norm;
            wrong += found_a == found_b && std::abs(found_a - norm) < 1e-9 * norm ? 0 : 1;
        }
    });
    LeakyBackend::missing = -1;
    return wrong != 0;
}

} // namespace

TEST_CASE("Each fence of a joint step is needed") {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        CHECK(!differs(-1, seed));
    }
    if (has_thread_sanitizer) {
        std::puts("skipped: no thread sanitizer, which reports the deliberate races itself");
        return;
    }
    for (Fence const fence : {Fence::joint_inspected, Fence::joint_added}) {
        CAPTURE(name_of(fence));
        std::uint64_t seed = 0;
        while (seed < 60 && !differs(static_cast<int>(fence), seed)) {
            ++seed;
        }
        CHECK(seed < 60);
    }
}

} // namespace zero::test::joint_step_refusals_test
