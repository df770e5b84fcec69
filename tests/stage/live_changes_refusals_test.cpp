#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/tiles.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What cannot be added or removed between two steps, and what groups, tiles, registered gradients
// and model ranks make of it.

namespace zero::test::live_changes_refusals_test {

namespace {

using namespace state_model;

using List = std::vector<Parameter<float>>;

Parameter<float> named(std::string name, std::size_t elements = 10, std::size_t unit = 0,
                       std::size_t group = 0) {
    return {.name = std::move(name), .elements = elements, .units = {unit}, .group = group};
}

template <class Engine>
std::size_t step_all(Engine& engine, float gradient = -1.0F) {
    engine.begin_step();
    for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            auto const weights = engine.acquire(unit);
            auto const gradients = engine.gradients(unit);
            for (std::size_t const p : engine.layout().unit_parameters(unit)) {
                for (float& value : gradients[p]) {
                    value = gradient;
                }
            }
            engine.gradients_ready(unit);
        }
    }
    engine.step(1.0);
    return engine.layout().parameters().size();
}

template <class Engine>
std::vector<float> firsts(Engine& engine) {
    std::vector<float> values;
    for (auto const& parameter : full_parameters(engine)) {
        values.push_back(parameter.empty() ? 0.0F : parameter[0]);
    }
    return values;
}

} // namespace

TEST_CASE("What cannot be added or removed is refused by name, and the engine goes on",
          "[stage][rebuild]") {
    struct Seen {
        std::vector<Outcome> outcomes{};
        bool is_same = false;
        Outcome step{};
    };
    auto const seen = on_ranks<Seen>(2, [](auto& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        run_step(engine, rank, 0);
        auto const hash = engine.layout().hash();
        Bits const before = state_of(engine);
        Seen own;
        auto const add = [&](List const& list) {
            own.outcomes.push_back(outcome_of([&] { add_parameters(engine, list); }));
        };
        auto const remove = [&](std::vector<std::string> const& names) {
            own.outcomes.push_back(outcome_of([&] { remove_parameters(engine, names); }));
        };
        add({named("first.bias")});
        add({named("new", 10, 5)});
        add({named("new", 10, 0, 2)});
        add({named("")});
        std::vector<float> memory(10);
        List frozen{named("new")};
        frozen[0].trainable = false;
        frozen[0].gradient = memory.data();
        add(frozen);
        remove({"first"});
        remove({"embedding", "head.scale"});
        engine.begin_step();
        add({named("new")});
        engine.cancel_step();
        {
            auto const held = engine.acquire(0);
            remove({"first.bias"});
        }
        add({named("new", rank == 0 ? 10 : 11)});
        List deterministic{named("new")};
        deterministic[0].is_deterministic = rank == 0;
        add(deterministic);
        rank == 0 ? add({named("new")}) : remove({"first.bias"});
        rank == 0 ? add({}) : remove({"first.bias"});
        add({});
        remove({});
        own.is_same = engine.layout().hash() == hash && state_of(engine) == before;
        own.step = outcome_of([&] { run_step(engine, rank, 1); });
        return own;
    })[1];
    CHECK(seen.is_same);
    CHECK(seen.step.message.empty());
    auto const& outcomes = seen.outcomes;
    REQUIRE(outcomes.size() == 15);
    std::vector<std::string> types;
    for (Outcome const& outcome : outcomes) {
        types.push_back(outcome.type);
    }
    CHECK(types
          == std::vector<std::string>{"InvalidArgument", "InvalidArgument", "InvalidArgument",
                                      "InvalidArgument", "InvalidArgument", "InvalidArgument",
                                      "InvalidArgument", "OutOfOrder", "OutOfOrder",
                                      "LayoutMismatch", "LayoutMismatch", "LayoutMismatch",
                                      "LayoutMismatch", "returned", "returned"});
    CHECK_THAT(outcomes[0].message, contains_text("two parameters are named 'first.bias'"));
    CHECK(outcomes[1].message
          == "zero: add_parameters() on rank 1: the parameters would be in 6 units, and an engine "
             "keeps the 5 units of its construction; for units that come or go, register a "
             "parameter without elements in the last one.");
    CHECK(outcomes[2].message
          == "zero: add_parameters() on rank 1: parameter 'new' is in group 2, and an engine keeps "
             "the 2 groups of its construction; for a group that comes later, register a parameter "
             "without elements in it.");
    CHECK_THAT(outcomes[3].message, contains_text("parameter number 8 has no name"));
    CHECK_THAT(outcomes[4].message, contains_text("frozen parameter 'new' has memory for its"));
    CHECK(outcomes[5].message
          == "zero: remove_parameters() on rank 1: no parameter has the name 'first'; "
             "engine.layout().parameters() lists all names.");
    CHECK_THAT(outcomes[6].message, contains_text("would be in 4 units"));
    CHECK_THAT(outcomes[7].message, contains_text("add_parameters() inside a step"));
    CHECK_THAT(outcomes[9].message, contains_text("'new' (11 elements of float32"));
    CHECK_THAT(outcomes[10].message, contains_text("'is_deterministic'"));
    CHECK_THAT(outcomes[11].message, contains_text("parameter number 2 is 'first.bias'"));
}

TEST_CASE("An adopted block, and scattered parameters without memory, are refused",
          "[stage][rebuild]") {
    auto const outcomes = on_ranks<std::vector<Outcome>>(1, [](auto& communicator) {
        std::vector<float> block(128);
        std::vector<Outcome> seen;
        for (Storage const storage : {Storage::adopted, Storage::scattered}) {
            List list{named("a", 64), named("b", 64)};
            list[0].data = block.data();
            list[1].data = block.data() + 64;
            typename ZeroStage<1>::Options options{.storage = storage};
            if (storage == Storage::adopted) {
                options.adopted_block = block;
            }
            ZeroStage<1> engine(communicator, list, options);
            seen.push_back(outcome_of([&] { add_parameters(engine, {named("c")}); }));
            seen.push_back(outcome_of([&] { remove_parameters(engine, {"b"}); }));
        }
        return seen;
    })[0];
    CHECK_THAT(outcomes[0].message, contains_text("an adopted block is cut"));
    CHECK_THAT(outcomes[1].message, contains_text("remove_parameters() on rank 0: an adopted"));
    CHECK_THAT(outcomes[2].message, contains_text("parameter 'c' has 10 elements but its pointer"));
    CHECK(outcomes[3].message.empty());
}

TEST_CASE("What an initialiser throws breaks the engine, and the other ranks learn it",
          "[stage][rebuild]") {
    std::array<HostMemoryResource, 3> memories;
    std::array<Outcome, 3> next;
    auto const outcomes = run_and_observe(3, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        ZeroStage<3> engine(communicator, registration<float>(toy_specs()),
                            {.memory = &memories[rank]});
        List list{named("new")};
        list[0].initialise = [](std::size_t, std::span<float>) {
            throw std::runtime_error("no such file");
        };
        try {
            add_parameters(engine, list);
        } catch (...) {
            next[rank] = outcome_of([&] { engine.begin_step(); });
            std::size_t slices = 0;
            engine.for_each_owned_slice([&](auto const&) { ++slices; }); // is still allowed
            throw;
        }
    });
    CHECK(outcomes.ranks[0].message == "no such file");
    CHECK(outcomes.ranks[1].type == "Aborted");
    CHECK_THAT(outcomes.ranks[1].message, contains_text("no such file"));
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK(next[rank].type == "BrokenEngine");
        CHECK(memories[rank].allocated_bytes() == 0);
    }
}

TEST_CASE("A parameter without elements keeps a group, and a unit, for parameters that come later",
          "[stage][rebuild]") {
    auto const seen = on_ranks<std::vector<std::vector<float>>>(2, [](auto& communicator) {
        using Stage = ZeroStage<2, Sgd>;
        List list{named("weight", 70), named("later", 0, 1, 1)};
        Stage engine(communicator, list,
                     {.groups = {{.optimizer = {.momentum = 0.0}},
                                 {.optimizer = {.momentum = 0.0}, .learning_rate_factor = 2.0}}});
        std::vector<std::vector<float>> own;
        add_parameters(engine, {named("adapter", 5, 1, 1)});
        step_all(engine);
        own.push_back(firsts(engine));
        remove_parameters(engine, {"later"});
        step_all(engine);
        own.push_back(firsts(engine));
        add_parameters(engine, {named("other", 3, 1)});
        remove_parameters(engine, {"adapter", "adapter"}); // a group without parameters
        engine.set_learning_rate(1, 4.0);
        step_all(engine);
        own.push_back(firsts(engine));
        add_parameters(engine, {named("adapter", 5, 1, 1)});
        step_all(engine);
        own.push_back(firsts(engine));
        return own;
    })[1];
    CHECK(seen[0] == std::vector<float>{1, 0, 2});
    CHECK(seen[1] == std::vector<float>{2, 4});
    CHECK(seen[2] == std::vector<float>{3, 1});
    CHECK(seen[3] == std::vector<float>{4, 2, 4});
}

TEST_CASE("Groups that only indices define lose their parameters and get others",
          "[stage][rebuild]") {
    auto const seen = on_ranks<std::vector<float>>(2, [](auto& communicator) {
        using Stage = ZeroStage<3, Sgd>;
        List list{named("a"), named("b", 10, 0, 1), named("c", 10, 0, 2)};
        Stage engine(communicator, list, {.optimizer = {.momentum = 0.0}});
        engine.set_learning_rate(2, 3.0);
        remove_parameters(engine, {"a", "b"}); // one is left, in group 2
        step_all(engine);
        add_parameters(engine, {named("d", 10, 0, 1)});
        step_all(engine);
        return firsts(engine);
    })[0];
    CHECK(seen == std::vector<float>{6, 1});
}

TEST_CASE("Added parameters take registered gradients, initial values and tiles",
          "[stage][rebuild]") {
    auto const seen = on_ranks<std::vector<float>>(2, [](auto& communicator) {
        host::DelayingQueue queue(static_cast<std::uint64_t>(communicator.rank()), 2000);
        ZeroStage<1, Sgd> engine(communicator, List{named("weight")},
                                 {.optimizer = {.momentum = 0.0}, .communication_queue = &queue});
        std::vector<float> start(10, communicator.rank() == 0 ? 5.0F : 6.0F);
        std::vector<float> gradient(10, -2.0F);
        List list{named("b")};
        list[0].initial = start.data();
        list[0].gradient = gradient.data();
        std::vector<float> result{static_cast<float>(add_parameters(engine, list))};
        start.assign(10, 0.0F);
        auto const many =
            tiles(Parameter<float>{.name = "table", .units = {0, 0}, .shape = {4, 5}}, 2);
        result.push_back(static_cast<float>(add_parameters(engine, many)));
        engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
            engine.begin_gradients(0); // clears
            gradient.assign(10, -2.0F);
            engine.gradients_ready(0);
        }
        engine.step(1.0);
        gradient.assign(10, 100.0F); // `step` has waited
        auto const values = firsts(engine);
        result.insert(result.end(), values.begin(), values.end());
        remove_parameters(engine, {"table"});
        result.push_back(static_cast<float>(engine.layout().parameters().size()));
        return result;
    })[1];
    CHECK(seen == std::vector<float>{1, 2, 0, 7, 0, 0, 2});
}

TEST_CASE("The first step after an addition rebuilds buckets in the order of its gradients",
          "[stage][rebuild]") {
    using Stage = ZeroStage<2>;
    auto const run = [](bool rebuilds) {
        return on_ranks<Bits>(2, [&](auto& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            Stage::Options options{.leases_until_rebuild = rebuilds ? 5U : 0U};
            if (rebuilds) {
                options.rebuild_buckets = Stage::in_ready_order;
            } else {
                options.extra_leases = 5;
            }
            Stage engine(communicator, registration<float>(toy_specs()), options);
            add_parameters(engine, {named("new", 100, 3)});
            for (std::uint64_t step = 0; step < 3; ++step) {
                run_step(engine, rank, step, 1, 0.01, 0, {1, 3, 0, 2, 4});
            }
            set_trainable(engine, {"new"}, false);
            run_step(engine, rank, 3);
            return state_of(engine);
        });
    };
    CHECK(run(true) == run(false));
}

TEST_CASE("Parts of a model add their own parameters, some of them none", "[stage][rebuild]") {
    using Parts = Groups<LoopbackCommunicator, ModelParallel>;
    auto const run = [](float of_second) {
        std::vector<std::vector<std::string>> seen(4);
        auto const outcome = outcome_of([&] {
            run_ranks<Parts>(4, test_time_out, {.model = 2}, [&](Parts& ranks) {
                std::size_t const part = static_cast<std::size_t>(ranks.model().rank());
                auto& own = seen[2 * static_cast<std::size_t>(ranks.rank()) + part];
                List list{named(part == 0 ? "first" : "second")};
                if (part == 1) {
                    list.push_back(named("last", 3, 0, 1));
                }
                ZeroStage<2, Parts, Sgd> engine(ranks, list, {.groups = {{}, {}}});
                remove_parameters(engine, part == 1 ? std::vector<std::string>{"last"}
                                                    : std::vector<std::string>{});
                add_parameters(engine, part == 0 ? List{named("adapter", 7)} : List{});
                float const start = part == 0 ? 1.0F : of_second;
                List shared{named("shared", 1)};
                shared[0].initial = &start;
                shared[0].counts_on = CountsOn::first_model_rank;
                try {
                    add_parameters(engine, shared);
                } catch (InvalidArgument const& error) {
                    own.emplace_back(error.what());
                }
                step_all(engine);
                for (auto const& spec : engine.layout().parameters()) {
                    own.push_back(spec.name);
                }
            });
        });
        seen.push_back({outcome.message});
        return seen;
    };
    auto const seen = run(1.0F);
    CHECK(seen[4][0].empty());
    CHECK(seen[0] == std::vector<std::string>{"first", "adapter", "shared"});
    CHECK(seen[3] == std::vector<std::string>{"second", "shared"});
    auto const differs = run(2.0F);
    CHECK(differs[4][0].empty());
    REQUIRE(differs[3].size() == 3);
    CHECK_THAT(differs[3][0], contains_text("'shared'"));
}

TEST_CASE("What a part of a model refuses, all refuse, and every part goes on",
          "[stage][rebuild]") {
    using Parts = Groups<LoopbackCommunicator, ModelParallel>;
    using Engine = ZeroStage<3, Parts, Sgd>;
    auto const run = [](bool is_refused) {
        std::vector<std::vector<Outcome>> outcomes(4);
        std::vector<std::vector<float>> values(4);
        run_ranks<Parts>(4, test_time_out, {.model = 2}, [&](Parts& ranks) {
            auto const part = static_cast<std::size_t>(ranks.model().rank());
            std::size_t const rank = 2 * static_cast<std::size_t>(ranks.rank()) + part;
            List list{named("first"), named(part == 0 ? "second" : "third", 5, 0, 1)};
            Engine engine(ranks, list, {.groups = {{}, {}}});
            auto const refused = [&](auto const& call) {
                if (is_refused) {
                    outcomes[rank].push_back(outcome_of(call));
                }
                step_all(engine);
            };
            refused([&] { set_trainable(engine, {"third"}, false); });
            refused([&] { set_trainable(engine, part == 0 ? 1 : 2, false); });
            refused([&] { remove_parameters(engine, {part == 0 ? "first" : "nonsense"}); });
            refused(
                [&] { (void)add_parameters(engine, part == 0 ? List{named("first")} : List{}); });
            refused([&] { // the data ranks of a part differ
                set_trainable(engine, {rank == 3 ? "third" : "first"}, false);
            });
            values[rank] = firsts(engine);
        });
        return std::pair{outcomes, values};
    };
    auto const expected = run(false);
    auto const found = run(true);
    CHECK(found.second == expected.second);
    CHECK(expected.second[0][0] > 10.0F); // it was trained
    std::size_t const refusing[]{0, 1, 1, 0};
    std::string const texts[]{"no parameter has the name 'third'", "no parameter is in group 2",
                              "no parameter has the name 'nonsense'",
                              "two parameters are named 'first'"};
    for (std::size_t rank = 0; rank < 4; ++rank) {
        REQUIRE(found.first[rank].size() == 5);
        for (std::size_t call = 0; call < 4; ++call) {
            Outcome const& outcome = found.first[rank][call];
            CHECK(outcome.type == "InvalidArgument");
            CHECK_THAT(outcome.message, contains_text(texts[call]));
            bool const is_told = outcome.message.find("refused it") != std::string::npos;
            CHECK(is_told == (rank % 2 != refusing[call]));
        }
        CHECK(found.first[rank][4].type == (rank % 2 == 1 ? "LayoutMismatch" : "InvalidArgument"));
    }
}

TEST_CASE("What was gathered or viewed before a change does not reach memory of before",
          "[stage][rebuild]") {
    struct Seen {
        Outcome change{}, view{}, set{}, local{}, held{}, step{};
        std::vector<float> second{}, third{}, by_index{};
        float written = 0.0F;
    };
    auto const all = on_ranks<Seen>(2, [](auto& communicator) {
        ZeroStage<3> engine(communicator, {named("a", 10), named("b", 20), named("c", 30, 1)});
        step_all(engine);
        Seen own;
        {
            auto open = gather(engine, {"a"}, Gather::all_write_equally);
            open.writable("a")[0] = 3.0F;
            own.change = outcome_of([&] { set_trainable(engine, {"b"}, false); });
            open.commit();
        }
        own.written = gather(engine, {"a"}).values("a")[0];
        auto const kept = gather(engine, {"b", "c"});
        own.second.assign(kept.values("b").begin(), kept.values("b").end());
        TrainingState view(engine);
        (void)view.full_fp32_parameter(1);
        remove_parameters(engine, {"a"});
        bool const is_same =
            std::ranges::equal(kept.values("b"), own.second) && kept.values("c").size() == 30;
        own.second.push_back(is_same ? 1.0F : 0.0F);
        own.by_index.assign(kept.values(1).begin(), kept.values(1).end());
        own.view = outcome_of([&] { (void)view.full_fp32_parameter(1); });
        own.set = outcome_of([&] { view.set_full_fp32_parameter(1, std::vector<float>(30)); });
        own.local = outcome_of([&] { (void)view.local_fp32_parameter(1); });
        own.held = outcome_of([&] { view.for_each_held_array([](auto const&...) {}); });
        own.third = TrainingState(engine).full_fp32_parameter(1);
        own.step = outcome_of([&] { step_all(engine); });
        return own;
    });
    for (Seen const& seen : all) {
        CHECK(seen.change.type == "OutOfOrder");
        CHECK_THAT(seen.change.message, contains_text("'a' is gathered for writing"));
        CHECK(seen.written == 3.0F);
        CHECK(seen.second.back() == 1.0F);
        CHECK(seen.by_index.size() == 20);
        for (Outcome const& outcome : {seen.view, seen.set, seen.local, seen.held}) {
            CHECK(outcome.type == "OutOfOrder");
            CHECK_THAT(outcome.message, contains_text("make another one"));
        }
        CHECK(seen.third.size() == 30);
        CHECK(seen.step.message.empty());
    }
}

TEST_CASE("What frees or replaces memory is refused in a visitor of it", "[stage][rebuild]") {
    auto const all = on_ranks<std::vector<Outcome>>(2, [](auto& communicator) {
        ZeroStage<3> engine(communicator, {named("a", 10), named("b", 20)});
        step_all(engine);
        std::vector<Outcome> outcomes;
        auto const refuse_all = [&](auto const&...) {
            if (outcomes.empty()) {
                outcomes.push_back(outcome_of([&] { set_trainable(engine, {"b"}, false); }));
                outcomes.push_back(outcome_of([&] { remove_parameters(engine, {"b"}); }));
                outcomes.push_back(outcome_of([&] { add_parameters(engine, {named("c", 3)}); }));
                outcomes.push_back(outcome_of([&] { engine.begin_step(); }));
                outcomes.push_back(
                    outcome_of([&] { (void)gather(engine, {"a"}, Gather::one_rank_writes); }));
            }
        };
        engine.for_each_owned_slice(refuse_all);
        std::vector<Outcome> found = outcomes;
        outcomes.clear();
        TrainingState(engine).for_each_held_array(refuse_all);
        found.insert(found.end(), outcomes.begin(), outcomes.end());
        found.push_back(outcome_of([&] { set_trainable(engine, {"b"}, false); }));
        return found;
    });
    for (std::vector<Outcome> const& found : all) {
        REQUIRE(found.size() == 11);
        for (std::size_t call = 0; call < 10; ++call) {
            INFO(call);
            CHECK(found[call].type == "OutOfOrder");
            CHECK_THAT(found[call].message, contains_text("in a visitor of states or parameters"));
        }
        CHECK(found[10] == Outcome{});
    }
}

TEST_CASE("A parameter for which max_live_elements has no room is refused, and the engine goes on",
          "[stage][rebuild]") {
    struct Seen {
        Outcome add{}, step{};
    };
    auto const all = on_ranks<Seen>(2, [](auto& communicator) {
        using Stage = ZeroStage<3>;
        Stage::Options options;
        options.gather.max_live_elements = 400;
        options.gather.keep_until_update = 128;
        Stage engine(communicator, {named("a", 100), named("b", 100, 1)}, options);
        step_all(engine);
        Seen own;
        own.add = outcome_of([&] { add_parameters(engine, {named("large", 1000, 1)}); });
        own.step = outcome_of([&] { step_all(engine); });
        return own;
    });
    for (Seen const& seen : all) {
        CHECK(seen.add.type == "InvalidArgument");
        CHECK_THAT(seen.add.message, contains_text("max_live_elements is 400"));
        CHECK_THAT(seen.add.message, contains_text("a lower keep_until_update"));
        CHECK(seen.step.message.empty());
    }
}

} // namespace zero::test::live_changes_refusals_test
