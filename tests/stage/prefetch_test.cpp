#include "gather_log.hpp"

#include <zero/layout/communication_model.hpp>

#include <functional>
#include <string>
#include <vector>

// When stage 3 gathers, keeps and frees units: an event log that a recording communicator and
// backend write equals a written expectation.

namespace zero::test::prefetch_test {

namespace {

using namespace gather_log;
using Stage = ZeroStage<3, Logged>;
using Backward = std::vector<std::size_t>;

/// The observations of one rank.
struct Seen {
    std::string text;
    TraceReport report;
    std::size_t leases = 0; ///< elements of the parameter leases
};

/// Runs forward and backward passes on the engine and logs each use of a unit.
struct Model {
    Stage& engine;
    Log& log;

    void read(std::size_t unit) {
        auto const weights = engine.acquire(unit);
        log.add("use" + std::to_string(unit));
    }
    void forward() {
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            read(unit);
        }
    }
    void backward(std::size_t unit) {
        auto const weights = engine.acquire(unit);
        log.add("use" + std::to_string(unit));
        for (float& gradient : engine.gradients(unit)[unit]) {
            gradient += 1.0F;
        }
        engine.gradients_ready(unit);
    }
    void backward() {
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            backward(unit);
        }
    }
    /// Runs a step of one micro-step, without its last line.
    void step(std::function<void()> const& body) {
        engine.begin_step();
        engine.begin_micro_step();
        body();
        engine.end_micro_step();
        (void)engine.step(0.1);
    }
    void plain_step() {
        step([&] {
            forward();
            backward();
        });
    }
    /// Discards the log so far.
    void start() { log.text.clear(); }
};

/// Runs `body(model)` on two ranks, each of which writes the same log.
Seen observe(std::vector<std::size_t> const& elements, GatherOptions const& gather,
             std::function<void(Model&)> const& body) {
    auto const ranks = on_ranks<Seen, Transport>(2, [&](Transport& transport) {
        Log own;
        Logged communicator(transport);
        Stage engine(communicator, registration<float>(chain(elements)),
                     {.gather = gather, .poison = true});
        log = &own;
        Model model{engine, own};
        body(model);
        log = nullptr;
        return Seen{own.text, engine.trace_report(),
                    engine.memory_plan()[BufferKind::parameter_leases].bytes() / sizeof(float)};
    });
    CHECK(ranks[0].text == ranks[1].text);
    return ranks[0];
}

std::vector<std::size_t> const equal{128, 128, 128};

} // namespace

TEST_CASE("The first micro-step gathers on demand, and the next ones one unit ahead") {
    auto const first = observe(equal, {}, [](Model& model) { model.plain_step(); });
    CHECK(first.text
          == "gather0 use0 free0 gather1 use1 free1 gather2 use2 free2 gather2 use2 reduce2 free2 "
             "gather1 use1 reduce1 free1 gather0 use0 reduce0 free0");
    auto const second = observe(equal, {}, [](Model& model) {
        model.plain_step();
        model.start();
        model.plain_step();
    });
    // The gather of a unit is enqueued before the reduction of the one before it.
    CHECK(second.text
          == "gather0 gather1 use0 free0 gather2 use1 free1 use2 free2 gather2 gather1 use2 "
             "reduce2 free2 gather0 use1 reduce1 free1 use0 reduce0 free0");
    CHECK(second.report.total() == UnitGathers{4, 8, 0, 0});
    CHECK(second.report.units[0] == UnitGathers{1, 3, 0, 0});
    CHECK(second.report.changed_orders == 0);
    CHECK(second.report.live_elements == 0);
    CHECK(second.report.most_live_elements == 256);
    CHECK(second.leases == 256);
}

TEST_CASE("Without elements to gather in advance every unit is gathered on demand") {
    auto const seen = observe(equal, {.prefetch_elements = 0}, [](Model& model) {
        model.plain_step();
        model.start();
        model.plain_step();
    });
    CHECK(seen.text
          == "gather0 use0 free0 gather1 use1 free1 gather2 use2 free2 gather2 use2 reduce2 free2 "
             "gather1 use1 reduce1 free1 gather0 use0 reduce0 free0");
    CHECK(seen.report.total() == UnitGathers{0, 12, 0, 0});
}

TEST_CASE("A distance in elements gathers as many units ahead as it holds, in both directions") {
    auto const run = [](Model& model) {
        model.plain_step();
        model.start();
        model.plain_step();
    };
    auto const two = observe({128, 128, 128, 128}, {.prefetch_elements = 256}, run);
    CHECK(two.text
          == "gather0 gather1 gather2 use0 free0 gather3 use1 free1 use2 free2 gather2 use3 free3 "
             "gather3 gather1 use3 reduce3 free3 gather0 use2 reduce2 free2 use1 reduce1 free1 "
             "use0 reduce0 free0");
    CHECK(two.report.most_live_elements == 384);
    CHECK(two.leases == 384);
    auto const less = observe({128, 128, 128, 128}, {.prefetch_elements = 255}, run);
    CHECK(less.report.most_live_elements == 256);
    // A unit that is larger than the distance is not gathered in advance, but two units have room.
    auto const small = observe({128, 128, 128, 128}, {.prefetch_elements = 127}, run);
    CHECK(small.report.total().in_time == 0);
    CHECK(small.leases == 256);
}

TEST_CASE("A changed order gathers on demand, is recorded again, and is told") {
    auto const seen = observe(equal, {}, [](Model& model) {
        model.plain_step();
        model.plain_step();
        model.start();
        model.step([&] {
            model.read(0);
            model.read(2); // unit 1 was gathered in advance, and its place is not needed
            model.read(1);
            model.backward();
        });
        model.log.add("|");
        model.step([&] {
            model.read(0);
            model.read(2);
            model.read(1);
            model.backward();
        });
    });
    CHECK(seen.text
          == "gather0 gather1 use0 free0 gather2 use2 free2 use1 free1 gather2 use2 reduce2 free2 "
             "gather1 use1 reduce1 free1 gather0 use0 reduce0 free0 | "
             "gather0 use0 free0 gather2 gather1 use2 free2 gather2 use1 free1 gather1 use2 "
             "reduce2 free2 gather0 use1 reduce1 free1 use0 reduce0 free0");
    // Units 0 and 2 share a place, so one is not gathered while the other is in use.
    CHECK(seen.report.units[2].late == 6);
    CHECK(seen.report.changed_orders == 1);
    CHECK(seen.report.first_change == OrderChange{3, 1, 2, 1});
}

TEST_CASE("Gathers that are not used are dropped by the step, and counted") {
    auto const seen = observe(equal, {}, [](Model& model) {
        model.plain_step();
        model.start();
        model.step([&] {
            model.read(0); // gathers unit 1
            model.backward(0);
        });
        model.plain_step();
    });
    CHECK(seen.text
          == "gather0 gather1 use0 free0 gather0 use0 reduce0 free0 reduce2 reduce1 free1 "
             "gather0 use0 free0 gather1 use1 free1 gather2 use2 free2 gather2 use2 reduce2 free2 "
             "gather1 use1 reduce1 free1 gather0 use0 reduce0 free0");
    CHECK(seen.report.units[1].dropped == 1);
    CHECK(seen.report.total().dropped == 1);
    // The short order and the longer one after it are both changes.
    CHECK(seen.report.changed_orders == 2);
    CHECK(seen.report.first_change == OrderChange{2, 1, 0, 1});
}

TEST_CASE("A unit that is acquired twice is gathered twice, whether it is held or not, and an "
          "evaluation adds nothing to the order") {
    auto const seen = observe(equal, {}, [](Model& model) {
        auto const nested = [&] {
            model.read(0);
            {
                auto const outer = model.engine.acquire(1);
                model.read(1);
                model.read(2);
            }
            model.backward();
        };
        model.step(nested);
        model.start();
        model.read(2); // between two steps
        model.log.add("|");
        model.step(nested);
    });
    CHECK(
        seen.text
        == "gather2 use2 free2 | gather0 gather1 use0 free0 gather1 gather2 use1 use2 free1 free2 "
           "gather2 gather1 use2 reduce2 free2 gather0 use1 reduce1 free1 use0 reduce0 free0");
    CHECK(seen.report.changed_orders == 0);
    CHECK(seen.report.units[1] == UnitGathers{2, 4, 0, 0});
}

TEST_CASE("A unit that is unused in backward keeps the recorded order of the others") {
    auto const seen = observe(equal, {}, [](Model& model) {
        auto const body = [&] {
            model.forward();
            model.backward(2);
            model.backward(0);
        };
        model.step(body);
        model.start();
        model.step(body);
    });
    CHECK(seen.text
          == "gather0 gather1 use0 free0 gather2 use1 free1 use2 free2 gather2 use2 "
             "reduce2 free2 gather0 use0 reduce0 free0 reduce1");
    CHECK(seen.report.changed_orders == 0);
}

TEST_CASE("Accumulation keeps the order, and each micro-step gathers its first unit on demand") {
    auto const seen = observe({128, 128}, {}, [](Model& model) {
        model.plain_step();
        model.start();
        model.engine.begin_step();
        for (int micro_step = 0; micro_step < 2; ++micro_step) {
            model.engine.begin_micro_step();
            model.forward();
            model.backward();
            model.engine.end_micro_step();
        }
        (void)model.engine.step(0.1);
    });
    std::string const once = "gather0 gather1 use0 free0 use1 free1 gather1 gather0 use1 reduce1 "
                             "free1 use0 reduce0 free0";
    CHECK(seen.text == once + " " + once);
    CHECK(seen.report.changed_orders == 0);
}

TEST_CASE("A changed order is an error by option, which changes nothing") {
    auto const seen = observe(equal, {.changed_order = ChangedOrder::error}, [](Model& model) {
        model.plain_step();
        model.start();
        model.engine.begin_step();
        model.engine.begin_micro_step();
        model.read(0);
        auto const outcome = outcome_of([&] { model.read(2); });
        std::string const text =
            " acquires unit 2 as number 1 of its micro-step, in the order 0, [2], where the "
            "recorded order is 0, [1], 2, 2, 1, 0;";
        model.log.add(outcome.type == "OutOfOrder"
                              && outcome.message.find(text) != std::string::npos
                          ? "refused"
                          : outcome.message);
        model.read(1); // continues in the recorded order
        model.read(2);
        model.backward();
        model.engine.end_micro_step();
        (void)model.engine.step(0.1);
    });
    CHECK(seen.text
          == "gather0 gather1 use0 free0 refused gather2 use1 free1 use2 free2 gather2 gather1 "
             "use2 reduce2 free2 gather0 use1 reduce1 free1 use0 reduce0 free0");
    CHECK(seen.report.changed_orders == 0);
    CHECK(seen.report.total().dropped == 0);
}

} // namespace zero::test::prefetch_test
