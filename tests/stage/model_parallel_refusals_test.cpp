#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/model_parallel.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// What ranks that share a copy of a model compare, and which mistakes they are told.

namespace zero::test::model_parallel_refusals_test {

namespace {

using Ranks = Groups<LoopbackCommunicator, ModelParallel>;

constexpr std::size_t world = 4; // 2 data ranks of 2 model ranks each

struct Place {
    std::size_t data, model;
};

/// Runs `body(ranks, place)` on 2 x 2 ranks and returns how each one ended.
template <class Body>
std::vector<Outcome> observe(Body const& body) {
    std::vector<Outcome> outcomes(world);
    (void)outcome_of([&] {
        run_ranks<Ranks>(world, test_time_out, {.model = 2}, [&](Ranks& ranks) {
            Place const place{static_cast<std::size_t>(ranks.rank()),
                              static_cast<std::size_t>(ranks.model().rank())};
            try {
                body(ranks, place);
            } catch (...) {
                outcomes[place.data * 2 + place.model] = outcome_of_current_exception();
                throw;
            }
        });
    });
    return outcomes;
}

/// Requires one cause on all ranks: an exception of the type, or `Aborted` with its text. At least
/// one rank throws the type.
void check_all(std::vector<Outcome> const& outcomes, std::string const& type, char const* text) {
    std::size_t causes = 0;
    for (Outcome const& outcome : outcomes) {
        CAPTURE(outcome.type, outcome.message);
        CHECK((outcome.type == type || outcome.type == "Aborted"));
        CHECK_THAT(outcome.message, contains_text(text));
        causes += outcome.type == type ? 1 : 0;
    }
    CHECK(causes != 0);
}

/// A part with one parameter that is cut over both model ranks, and one that is replicated.
template <class T = float>
std::vector<Parameter<T>> part(Place place, std::size_t before = 0) {
    std::vector<Parameter<T>> parameters;
    auto const add = [&](char const* name, std::size_t elements, CountsOn counts_on) {
        Parameter<T> parameter;
        parameter.name = name;
        parameter.elements = elements;
        parameter.counts_on = counts_on;
        parameters.push_back(parameter);
    };
    if (before != 0) {
        add(place.model == 0 ? "first of 0" : "first of 1", before, CountsOn::every_model_rank);
    }
    add("cut", 10 + place.model, CountsOn::every_model_rank);
    add("shared", 20, CountsOn::first_model_rank);
    return parameters;
}

template <class Engine>
void pass(Engine& engine, float shared) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(1)) {
        (void)micro_step;
        auto const gradients = engine.gradients(0);
        for (auto& value : gradients[0]) {
            value = 1.0F;
        }
        for (auto& value : gradients[1]) {
            value = shared;
        }
        engine.gradients_ready(0);
    }
}

template <class Engine>
auto step(Engine& engine, double rate, std::optional<std::int64_t> weight, float shared) {
    pass(engine, shared);
    return engine.step(rate, weight);
}

template <int N>
void check_differences() {
    CAPTURE(N);
    using Stage = ZeroStage<N, Ranks>;
    check_all(observe([](Ranks& ranks, Place place) {
                  Stage const engine(ranks, part(place),
                                     {.gradient_clipping = place.model == 0 ? 1.0F : 2.0F});
              }),
              "LayoutMismatch", "'gradient_clipping'");
    check_all(observe([](Ranks& ranks, Place place) {
                  auto parameters = part(place);
                  parameters[0].group = place.model;
                  Stage const engine(ranks, parameters, {.report = {.group_norms = true}});
              }),
              "LayoutMismatch", "'number of groups'");
    check_all(observe([](Ranks& ranks, Place place) {
                  Stage engine(ranks, part(place));
                  (void)step(engine, place.model == 0 ? 0.25 : 0.125, {}, 1.0F).report();
              }),
              "CollectiveMismatch", "model ranks: rate 0.125 after 1 micro-step, ");
    check_all(observe([](Ranks& ranks, Place place) {
                  Stage engine(ranks, part(place),
                               {.reduction = {.kind = ReductionKind::weighted_mean}});
                  auto const weight = static_cast<std::int64_t>(1 + place.model);
                  (void)step(engine, 0.25, weight, 1.0F).report();
              }),
              "CollectiveMismatch", "settings as hash");
    check_all(
        observe([](Ranks& ranks, Place place) {
            Stage const engine(ranks, part(place), {.groups = {{.learning_rate_factor = 1.0}, {}}});
        }),
        "InvalidArgument", "no model rank has a parameter in group 1");
}

} // namespace

TEST_CASE("Model ranks that differ in an option, a rate, a weight or the number of groups are told "
          "on every rank, although the data ranks of each part agree") {
    check_differences<0>();
    check_differences<2>();
    check_differences<3>();
}

TEST_CASE("Parts of a model that use two engines in another order are told") {
    auto const observed = [](std::size_t of_second, bool measures, NormScope scope) {
        return observe([=](Ranks& ranks, Place place) {
            using Engine = ZeroStage<2, Ranks>;
            Engine a(ranks, part(place)), b(ranks, part(place));
            pass(a, 1.0F);
            pass(b, 2.0F);
            Engine* const engines[]{&a, &b};
            std::size_t const first = place.model == 0 ? 0 : of_second;
            for (std::size_t const number : {first, 1 - first}) {
                if (measures) {
                    (void)engines[number]->gradient_norms(NormKind::l2, scope);
                } else {
                    (void)engines[number]->step(0.01).report();
                }
            }
            if (measures) {
                a.cancel_step();
                b.cancel_step();
            }
        });
    };
    for (NormScope const scope : {NormScope::global, NormScope::parameters}) {
        check_all(observed(1, true, scope), "CollectiveMismatch", " of engine ");
        for (Outcome const& outcome : observed(0, true, scope)) {
            CHECK(outcome == Outcome{});
        }
    }
    check_all(observed(1, false, {}), "CollectiveMismatch", "'model ranks: rate 0.01");
    for (Outcome const& outcome : observed(0, false, {})) {
        CHECK(outcome == Outcome{});
    }
}

TEST_CASE("Parts of a model may store and gather their parameters in ways of their own, and have "
          "no parameter in some group") {
    auto const outcomes = observe([](Ranks& ranks, Place place) {
        auto parameters = part(place);
        parameters[0].group = place.model;
        ZeroStage<3, Ranks> const engine(
            ranks, parameters,
            {.gather = {.prefetch_elements = place.model == 0 ? 0U : 100U},
             .groups = {{.learning_rate_factor = 1.0}, {.learning_rate_factor = 2.0}}});
    });
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome == Outcome{});
    }
}

TEST_CASE("Replicas that have no twin, another size, another kind or other values are refused by "
          "name") {
    using Stage = ZeroStage<2, Ranks>;
    check_all(observe([](Ranks& ranks, Place place) {
                  auto parameters = part(place);
                  parameters[1].name = place.model == 0 ? "shared" : "other";
                  Stage const engine(ranks, parameters);
              }),
              "InvalidArgument", "registered this name");
    check_all(observe([](Ranks& ranks, Place place) {
                  auto parameters = part(place);
                  parameters[1].elements += place.model;
                  Stage const engine(ranks, parameters);
              }),
              "LayoutMismatch", "elements; replicas are equal");
    check_all(observe([](Ranks& ranks, Place place) {
                  auto parameters = part(place);
                  parameters[1].counts_on =
                      place.model == 0 ? CountsOn::first_model_rank : CountsOn::every_model_rank;
                  Stage const engine(ranks, parameters);
              }),
              "LayoutMismatch", "a replica on one of them only");
    check_all(observe([](Ranks& ranks, Place place) {
                  auto parameters = part(place);
                  std::vector<float> const initial(20, place.model == 0 ? 1.0F : 2.0F);
                  parameters[1].initial = initial.data();
                  Stage const engine(ranks, parameters);
              }),
              "InvalidArgument", "'shared' differ between model ranks 0 and 1");
    for (bool const is_frozen : {true, false}) {
        check_all(observe([=](Ranks& ranks, Place place) {
                      auto parameters = part(place);
                      parameters[1].trainable = !is_frozen || place.model == 0;
                      parameters[1].group = !is_frozen ? place.model : 0;
                      Stage const engine(
                          ranks, parameters,
                          {.groups = std::vector<ParameterGroup<AdamW>>(is_frozen ? 1 : 2)});
                  }),
                  "LayoutMismatch", "one is frozen, in another parameter group");
    }
    check_all(observe([](Ranks& ranks, Place place) {
                  Stage const engine(ranks, part(place),
                                     {.unused_parameters = UnusedParameters::leave});
              }),
              "InvalidArgument", "UnusedParameters::leave would leave it in one part");
    Outcomes const plain = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> const engine(communicator, part({0, 0}));
    });
    CHECK(plain.rethrown.type == "InvalidArgument");
    CHECK_THAT(plain.rethrown.message, contains_text("'counts_on' of parameter 'shared'"));
    CHECK_THAT(plain.rethrown.message, contains_text("zero::ModelParallel"));
}

TEST_CASE("Replicas at other places in their layouts are refused where elements are rounded by "
          "number, and cut parameters where whole ones are updated") {
    using Rounded = ZeroStage<2, Parameters<bfloat16>, StochasticRounding, Ranks>;
    auto const rounded = [](std::size_t of_second) {
        return observe([=](Ranks& ranks, Place place) {
            Rounded const engine(ranks, part<bfloat16>(place, place.model == 0 ? 64 : of_second));
        });
    };
    check_all(rounded(128), "LayoutMismatch", "elements have other numbers");
    check_all(observe([](Ranks& ranks, Place place) {
                  ZeroStage<2, Lamb, BalancedPartitioner, Ranks> const engine(ranks, part(place));
              }),
              "LayoutMismatch", "parameter 'cut' of model ranks");
}

TEST_CASE("Replicas whose gradients differ are found on demand, and the engine remains usable") {
    std::vector<std::string> found(world);
    std::vector<double> norms(world);
    auto const outcomes = observe([&](Ranks& ranks, Place place) {
        ZeroStage<3, Ranks> engine(ranks, part(place), {.gradient_clipping = 1.0F});
        (void)step(engine, 0.25, {}, 2.0F);
        engine.require_same_replicas();
        (void)step(engine, 0.25, {}, place.model == 0 ? 2.0F : -1.0F);
        std::size_t const rank = place.data * 2 + place.model;
        found[rank] = outcome_of([&] { engine.require_same_replicas(); }).message;
        norms[rank] = step(engine, 0.25, {}, 2.0F).report().gradient_norm;
    });
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(outcomes[rank].message.empty());
        CHECK_THAT(found[rank], contains_text("'shared' differ between model ranks 0 and 1"));
        CHECK(norms[rank] == std::sqrt(10.0 + 11.0 + 20.0 * 4.0));
    }
}

TEST_CASE("A rank that throws releases the ranks of all parts with its cause") {
    for (std::size_t failing = 0; failing < world; ++failing) {
        auto const outcomes = observe([=](Ranks& ranks, Place place) {
            ZeroStage<3, Ranks> engine(ranks, part(place));
            (void)step(engine, 0.25, {}, 1.0F).report();
            if (place.data * 2 + place.model == failing) {
                throw std::runtime_error("the disk of one rank is full");
            }
            (void)step(engine, 0.25, {}, 1.0F).report();
        });
        for (Outcome const& outcome : outcomes) {
            CHECK_THAT(outcome.message, contains_text("the disk of one rank is full"));
        }
    }
}

TEST_CASE("Model ranks are a divisor of all, equal everywhere, and given parts form a grid") {
    auto const with = [](std::size_t of_first, std::size_t of_others) {
        return run_and_observe(4,
                               [=](LoopbackCommunicator& everyone) {
                                   Ranks const ranks(
                                       everyone,
                                       {.model = everyone.rank() == 0 ? of_first : of_others});
                               })
            .ranks;
    };
    for (Outcome const& outcome : with(3, 3)) {
        CHECK(outcome.type == "InvalidArgument");
        CHECK_THAT(outcome.message, contains_text(".model is 3, and there are 4 ranks"));
    }
    check_all(with(0, 0), "InvalidArgument", ".model is 0");
    check_all(with(2, 4), "LayoutMismatch", ".model is 2 on rank 0 and 4 on rank 1");
    auto const crossed = run_and_observe(4, [](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto data = everyone.split(rank / 2, rank);
        auto model = everyone.split(rank / 2, rank);
        Ranks const ranks(data, model);
    });
    check_all(crossed.ranks, "InvalidArgument", "the parts do not form a grid");
}

TEST_CASE("A rank that cannot see that given parts form no grid learns it from one that can") {
    std::vector<Outcome> told(3); // in the body: an exception that leaves it aborts others
    run_ranks(3, test_time_out, [&](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto data = everyone.split(rank / 2, rank);  // {0, 1}, {2}
        auto model = everyone.split(rank % 2, rank); // {0, 2}, {1}
        told[static_cast<std::size_t>(rank)] = outcome_of([&] { Ranks const ranks(data, model); });
    });
    for (Outcome const& outcome : told) {
        CHECK(outcome.type == (&outcome == &told[2] ? "Aborted" : "InvalidArgument"));
        CHECK_THAT(outcome.message, contains_text("the parts do not form a grid"));
    }
}

TEST_CASE("A frozen part takes part in the step of the others, and is told when they deliver "
          "nothing") {
    enum class Other { delivers, delivers_nothing, frozen };
    for (Other const other : {Other::delivers, Other::delivers_nothing, Other::frozen}) {
        CAPTURE(static_cast<int>(other));
        std::vector<double> norms(world);
        std::vector<Outcome> told(world); // in the body: an exception that leaves it aborts others
        auto const outcomes = observe([&](Ranks& ranks, Place place) {
            auto parameters = part(place);
            parameters[0].trainable = parameters[1].trainable =
                place.model == 0 && other != Other::frozen;
            parameters[1].counts_on = CountsOn::every_model_rank;
            parameters[1].name += place.model == 0 ? " of 0" : " of 1";
            ZeroStage<2, Ranks> engine(ranks, parameters, {.gradient_clipping = 1.0F});
            auto const make_step = [&](bool delivers) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    (void)micro_step;
                    if (place.model == 0 && delivers) {
                        engine.gradients(0)[0][0] = 3.0F;
                        engine.gradients_ready(0);
                    }
                }
                return engine.step(0.25).report().gradient_norm;
            };
            std::size_t const rank = place.data * 2 + place.model;
            told[rank] = outcome_of([&] { norms[rank] = make_step(other == Other::delivers); });
            (void)make_step(other != Other::frozen); // all continue
        });
        for (std::size_t rank = 0; rank < world; ++rank) {
            CHECK(outcomes[rank] == Outcome{});
            CHECK(told[rank].type
                  == (other == Other::delivers_nothing ? "NoGradients" : "returned"));
            CHECK(norms[rank] == (other == Other::delivers ? 3.0 : 0.0));
        }
    }
}

TEST_CASE("A part without parameters takes part in every step, also where unused ones are left") {
    for (auto const unused : {UnusedParameters::zero, UnusedParameters::leave}) {
        CAPTURE(static_cast<int>(unused));
        std::vector<double> norms(world);
        auto const outcomes = observe([&](Ranks& ranks, Place place) {
            auto parameters = part(place);
            parameters.resize(place.model == 0 ? 1 : 0);
            ZeroStage<2, Ranks> engine(ranks, parameters,
                                       {.gradient_clipping = 1.0F, .unused_parameters = unused});
            for (int number = 0; number < 2; ++number) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    (void)micro_step;
                    if (place.model == 0) {
                        engine.gradients(0)[0][0] = 3.0F;
                        engine.gradients_ready(0);
                    }
                }
                norms[place.data * 2 + place.model] = engine.step(0.25).report().gradient_norm;
            }
        });
        for (std::size_t rank = 0; rank < world; ++rank) {
            CHECK(outcomes[rank] == Outcome{});
            CHECK(norms[rank] == 3.0);
        }
    }
}

TEST_CASE("A part that is trained and delivers nothing is told, and the others skip the step") {
    std::vector<int> skipped(world);
    auto const outcomes = observe([&](Ranks& ranks, Place place) {
        ZeroStage<2, Ranks> engine(ranks, part(place));
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            (void)micro_step;
            if (place.model == 0) {
                engine.gradients(0)[0][0] = 3.0F;
                engine.gradients_ready(0);
            }
        }
        std::size_t const rank = place.data * 2 + place.model;
        Outcome const told = outcome_of([&] { (void)engine.step(0.25); });
        skipped[rank] = engine.last_report().is_skipped ? 1 : 0;
        if (told.type != (place.model == 0 ? "returned" : "NoGradients")) {
            throw std::runtime_error(told.message);
        }
        (void)step(engine, 0.25, {}, 1.0F).report(); // all continue
    });
    CHECK(skipped == std::vector<int>(world, 1));
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome == Outcome{});
    }
}

} // namespace zero::test::model_parallel_refusals_test
