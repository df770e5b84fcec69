#include "gather_log.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/lease_plan.hpp>
#include <zero/layout/memory_plan.hpp>

#include <functional>
#include <string>
#include <vector>

// Limits of stage 3: what stays gathered, how much is gathered at once, and how many elements move.

namespace zero::test::gather_limits_test {

namespace {

using namespace gather_log;
using Stage = ZeroStage<3, Logged>;
constexpr int world = 2;

struct Seen {
    std::string text;
    TraceReport report;
    std::vector<std::vector<float>> values;
    std::size_t leases = 0;      ///< elements that the plan counts
    std::size_t allocated = 0;   ///< the same from the memory resource
    std::size_t own_moved = 0;   ///< elements that this rank read from others in the last step
    std::size_t own_formula = 0; ///< the same by formula
};

/// Units in the order in which they are acquired.
using Order = std::vector<std::size_t>;

/// Trains three steps of `micro_steps`, and reports the last one.
/// @param keeps_all false if the limit of live elements has no room for everything that the options
/// keep
Seen train(std::vector<ParameterSpec> const& specs, GatherOptions const& gather,
           Order const& forward, Order const& backward, std::size_t micro_steps = 1,
           bool keeps_all = true) {
    auto const ranks = on_ranks<Seen, Transport>(world, [&](Transport& transport) {
        Log own;
        Logged communicator(transport);
        HostMemoryResource memory;
        Stage engine(communicator, registration<float>(specs),
                     {.gather = gather, .poison = true, .memory = &memory});
        Seen seen;
        std::vector<std::size_t> acquired;
        for (std::uint64_t step = 0; step < 3; ++step) {
            own.text.clear();
            log = step == 2 ? &own : nullptr;
            transport.reset_traffic();
            acquired.clear();
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(micro_steps)) {
                for (std::size_t const unit : forward) {
                    auto const weights = engine.acquire(unit);
                    own.add("use" + std::to_string(unit));
                    acquired.push_back(unit);
                }
                for (std::size_t const unit : backward) {
                    auto const weights = engine.acquire(unit);
                    own.add("use" + std::to_string(unit));
                    acquired.push_back(unit);
                    auto const gradients = engine.gradients(unit);
                    for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                        auto const gradient = gradients[parameter];
                        for (std::size_t i = 0; i < gradient.size(); ++i) {
                            gradient[i] += noise(step * 8 + micro_step, unit, parameter, i)
                                           + weights[parameter][i];
                        }
                    }
                    engine.gradients_ready(unit);
                }
            }
            (void)engine.step(0.1).report();
            own.add("end");
        }
        log = nullptr;
        seen.text = own.text;
        seen.report = engine.trace_report();
        seen.leases = engine.memory_plan()[BufferKind::parameter_leases].bytes() / sizeof(float);
        seen.allocated = memory.allocated_bytes(BufferKind::parameter_leases) / sizeof(float);
        seen.own_moved = transport.traffic()[CollectiveKind::all_gather].elements;
        seen.own_formula =
            step_traffic_of_rank(engine.layout(), static_cast<std::size_t>(transport.rank()), 3,
                                 engine.schedule(), micro_steps, acquired, gather)
                .all_gather;
        seen.values = full_parameters(engine);
        return seen;
    });
    CHECK(ranks[0].text == ranks[1].text);
    for (Seen const& seen : ranks) {
        if (keeps_all) {
            CHECK(seen.own_moved == seen.own_formula);
        } else {
            CHECK(seen.own_moved > seen.own_formula);
        }
        CHECK(seen.allocated == seen.leases);
        CHECK(seen.report.most_live_elements <= seen.leases);
        CHECK(seen.report.most_live_elements <= gather.max_live_elements);
        CHECK(seen.leases <= gather.max_live_elements);
    }
    return ranks[0];
}

Order const forward4{0, 1, 2, 3};
Order const backward4{3, 2, 1, 0};
std::vector<ParameterSpec> const four = chain({128, 128, 128, 128});

} // namespace

TEST_CASE("The last units of the forward pass stay gathered, and none of their elements moves "
          "twice") {
    auto const none = train(four, {}, forward4, backward4);
    CHECK(none.own_moved == 8 * 64);
    auto const one = train(four, {.keep_after_forward = 1}, forward4, backward4);
    CHECK(one.text
          == "gather0 gather1 use0 free0 gather2 use1 free1 gather3 use2 free2 use3 gather2 use3 "
             "reduce3 free3 gather1 use2 reduce2 free2 gather0 use1 reduce1 free1 use0 reduce0 "
             "free0 end");
    CHECK(one.own_moved == 7 * 64);
    CHECK(one.leases == 256);
    CHECK((one.values == none.values));
    auto const two = train(four, {.keep_after_forward = 2}, forward4, backward4);
    CHECK(two.own_moved == 6 * 64);
    CHECK(two.leases == 256);
    CHECK((two.values == none.values));
    auto const every = train(four, {.keep_after_forward = GatherOptions::all}, forward4, backward4);
    CHECK(every.text
          == "gather0 gather1 use0 gather2 use1 gather3 use2 use3 use3 reduce3 free3 use2 reduce2 "
             "free2 use1 reduce1 free1 use0 reduce0 free0 end");
    CHECK(every.own_moved == 4 * 64);
    CHECK(every.leases == 512);
    CHECK((every.values == none.values));
}

TEST_CASE("A unit that comes again within the reuse distance is not released") {
    auto const none = train(four, {}, forward4, backward4);
    auto const at_once = train(four, {.max_reuse_distance = 0}, forward4, backward4);
    CHECK(at_once.own_moved == 7 * 64);
    CHECK((at_once.values == none.values));
    auto const near = train(four, {.max_reuse_distance = 255}, forward4, backward4);
    CHECK(near.own_moved == 7 * 64);
    auto const far = train(four, {.max_reuse_distance = 256}, forward4, backward4);
    CHECK(far.own_moved == 6 * 64); // unit 3 is between the uses of unit 2, twice
    CHECK((far.values == none.values));
}

TEST_CASE("Recomputation in backward costs no gather if the reuse distance covers it") {
    // Activations of two units at a time are computed again.
    Order const backward{2, 3, 3, 2, 0, 1, 1, 0};
    auto const counted = [&](GatherOptions const& gather) {
        auto const ranks = on_ranks<Traffic, Transport>(world, [&](Transport& transport) {
            Logged communicator(transport);
            Stage engine(communicator, registration<float>(four), {.gather = gather});
            for (int step = 0; step < 2; ++step) {
                transport.reset_traffic();
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    for (std::size_t const unit : forward4) {
                        (void)engine.acquire(unit);
                    }
                    for (std::size_t position = 0; position < backward.size(); ++position) {
                        auto const weights = engine.acquire(backward[position]);
                        if (position % 4 >= 2) { // the others are computed again
                            engine.gradients(backward[position])[backward[position]][0] += 1.0F;
                            engine.gradients_ready(backward[position]);
                        }
                    }
                }
                (void)engine.step(0.1).report();
            }
            Order all = forward4;
            all.insert(all.end(), backward.begin(), backward.end());
            Traffic const formula =
                step_traffic_of_rank(engine.layout(), static_cast<std::size_t>(transport.rank()), 3,
                                     engine.schedule(), 1, all, gather);
            return Traffic{transport.traffic()[CollectiveKind::all_gather].elements,
                           formula.all_gather, 0};
        });
        CHECK(ranks[0].reduce_scatter == ranks[0].all_gather); // the transport and the formula
        return ranks[0].all_gather;
    };
    CHECK(counted({}) == 12 * 64);
    CHECK(counted({.max_reuse_distance = 256}) == 6 * 64);
}

TEST_CASE("Persistent parameters share one bucket, are gathered once a step, and need no release") {
    std::vector<ParameterSpec> specs = chain({128, 128, 128, 128});
    for (std::size_t unit = 0; unit < 4; ++unit) {
        specs.push_back({"small" + std::to_string(unit), 32, {unit}, 0, true});
    }
    auto const none = train(specs, {}, forward4, backward4);
    auto const all = train(specs, {.persistence_threshold = 32}, forward4, backward4);
    CHECK(all.text
          == "gather0 gathersmall3 gather1 use0 free0 gather2 use1 free1 gather3 use2 free2 use3 "
             "free3 gather3 gather2 use3 reduce3 free3 gather1 use2 reduce2 free2 gather0 use1 "
             "reduce1 free1 use0 reduce0 reducesmall3 free0 freesmall3 end");
    CHECK((all.values == none.values));
    CHECK(none.own_moved == 8 * 128); // with padding a unit has 256 elements
    CHECK(all.own_moved == 8 * 64 + 128);
    auto const two = train(specs, {.persistence_threshold = 32, .max_persistent_elements = 70},
                           forward4, backward4);
    CHECK(two.own_moved == 4 * 64 + 4 * 128 + 64);
    CHECK((two.values == none.values));
    // The whole model may be persistent.
    auto const model = train(specs, {.persistence_threshold = 1000}, forward4, backward4, 2);
    CHECK(model.report.total() == UnitGathers{0, 3, 45, 0});
    CHECK(model.own_moved == 512 / 2 + 256 / 2);
}

TEST_CASE("Units that are kept until the update are gathered once a step, whatever the number of "
          "micro-steps") {
    constexpr std::size_t micro_steps = 4;
    auto const none = train(four, {}, forward4, backward4, micro_steps);
    CHECK(none.own_moved == 2 * 4 * micro_steps * 64);
    auto const after_forward =
        train(four, {.keep_after_forward = GatherOptions::all}, forward4, backward4, micro_steps);
    CHECK(after_forward.own_moved == 4 * micro_steps * 64);
    auto const all =
        train(four, {.keep_until_update = GatherOptions::all}, forward4, backward4, micro_steps);
    CHECK(all.own_moved == 4 * 64);
    CHECK(all.leases == 512);
    CHECK((all.values == none.values));
    // Their gathers still run one unit ahead, and reductions as each unit is ready.
    CHECK(train(four, {.keep_until_update = GatherOptions::all}, forward4, backward4).text
          == "gather0 gather1 use0 gather2 use1 gather3 use2 use3 use3 reduce3 use2 reduce2 use1 "
             "reduce1 use0 reduce0 free3 free2 free1 free0 end");
    auto const two = train(four, {.keep_until_update = 383}, forward4, backward4, micro_steps);
    CHECK(two.own_moved == (2 + 2 * 2 * micro_steps) * 64);
    CHECK(two.leases == 512);
    CHECK((two.values == none.values));
}

TEST_CASE("A limit of live elements makes the pool as small as the largest unit") {
    std::vector<ParameterSpec> const specs = chain({640, 128, 256, 128});
    auto const none = train(specs, {}, forward4, backward4);
    CHECK(none.leases == 768);
    for (std::size_t const limit : {640U, 700U, 768U, 896U, 1024U, 1152U}) {
        for (std::size_t const kept : {std::size_t{0}, std::size_t{1}, GatherOptions::all}) {
            INFO("limit " << limit << ", " << kept << " kept");
            auto const seen =
                train(specs,
                      {.prefetch_elements = 384,
                       .max_reuse_distance = 128,
                       .keep_after_forward = kept,
                       .max_live_elements = limit},
                      forward4, backward4, 1, kept != GatherOptions::all || limit == 1152);
            CHECK((seen.values == none.values));
        }
    }
    auto const in_turn = train(specs, {.max_live_elements = 640}, forward4, backward4);
    CHECK(in_turn.leases == 640);
    CHECK(in_turn.report.most_live_elements == 640);
    CHECK(in_turn.report.total().in_time != 0); // units 1 and 2 fit together
}

TEST_CASE("Where the limit has no room, the unit that is needed last is released first") {
    GatherOptions const gather{.keep_after_forward = GatherOptions::all, .max_live_elements = 384};
    auto const seen = train(four, gather, forward4, backward4, 1, false);
    CHECK(seen.text
          == "gather0 gather1 use0 gather2 use1 use2 free0 free1 gather3 use3 use3 reduce3 free3 "
             "gather1 use2 reduce2 free2 gather0 use1 reduce1 free1 use0 reduce0 free0 end");
}

TEST_CASE("A limit that does not hold the largest unit is refused and names it") {
    auto const outcomes = run_and_observe<Transport>(world, [&](Transport& transport) {
        Logged communicator(transport);
        Stage const engine(communicator, registration<float>(chain({128, 640, 128})),
                           {.gather = {.max_live_elements = 639}});
    });
    for (Outcome const& rank : outcomes.ranks) {
        CHECK(rank.type == "InvalidArgument");
        CHECK(rank.message.find("max_live_elements is 639, but unit 1 needs 640 gathered elements")
              != std::string::npos);
    }
}

TEST_CASE("A program that holds two units under a limit for one is refused and can go on") {
    auto const refused =
        on_ranks<std::vector<std::string>, Transport>(world, [&](Transport& transport) {
            Logged communicator(transport);
            Stage engine(communicator, registration<float>(chain({128, 128})),
                         {.gather = {.max_live_elements = 128}});
            std::vector<std::string> seen;
            {
                auto const held = engine.acquire(0);
                seen.push_back(outcome_of([&] { (void)engine.acquire(1); }).type);
            }
            auto const next = engine.acquire(1);
            seen.push_back(next[1][0] == noise(1, 1, 0) ? "right" : "wrong");
            return seen;
        });
    CHECK((refused[0] == std::vector<std::string>{"OutOfOrder", "right"}));
}

} // namespace zero::test::gather_limits_test
