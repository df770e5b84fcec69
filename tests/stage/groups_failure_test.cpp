#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// Everything that ranks compare and decide covers the ranks of all groups.

namespace zero::test::groups_failure_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Hybrid>;

template <int N>
using Stage = ZeroStage<N, DynamicLossScaler, Hosts>;

constexpr std::size_t world = 4;
constexpr auto every_micro_step = ReductionSchedule::every_micro_step;

/// Runs `body(hosts, rank)` on 2 x 2 ranks and returns how each one ended.
template <class Body>
std::vector<Outcome> observe(Body const& body) {
    std::vector<Outcome> outcomes(world);
    (void)outcome_of([&] {
        run_ranks<Hosts>(world, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
            auto const rank = static_cast<std::size_t>(hosts.rank());
            try {
                body(hosts, rank);
            } catch (...) {
                outcomes[rank] = outcome_of_current_exception();
                throw;
            }
        });
    });
    return outcomes;
}

void check_all(std::vector<Outcome> const& outcomes, char const* type, char const* text) {
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome.type == type);
        CHECK_THAT(outcome.message, contains_text(text));
    }
}

template <int N>
void check_differences() {
    CAPTURE(N);
    auto const parameters = registration<float>(toy_specs());
    // rank 3 is in the other replica than rank 0, and ranks 2 and 3 agree with each other
    check_all(observe([&](Hosts& hosts, std::size_t rank) {
                  Stage<N> const engine(hosts, parameters,
                                        {.gradient_clipping = rank < 2 ? 1.0F : 2.0F});
              }),
              "LayoutMismatch", "gradient_clipping");
    check_all(observe([&](Hosts& hosts, std::size_t rank) {
                  auto own = parameters;
                  own[1].elements += rank < 2 ? 0 : 1;
                  Stage<N> const engine(hosts, own);
              }),
              "LayoutMismatch", "first.weight");
    check_all(observe([&](Hosts& hosts, std::size_t rank) {
                  Stage<N> engine(hosts, parameters);
                  (void)run_step(engine, rank, 0, 2, rank < 2 ? 0.01 : 0.02).report();
              }),
              "CollectiveMismatch", "0.02");
}

} // namespace

TEST_CASE("Groups that differ in an option, a parameter or a learning rate are told on every rank, "
          "although the ranks of each group agree") {
    check_differences<1>();
    check_differences<2>();
    check_differences<3>();
}

TEST_CASE("Ranks that make different numbers of micro-steps are told on every rank, whichever "
          "groups they are in") {
    auto const parameters = registration<float>(toy_specs());
    std::vector<std::vector<std::size_t>> const numbers{
        {1, 1, 2, 2}, {1, 2, 1, 2}, {1, 1, 1, 2}, {1, 2, 2, 1}};
    auto const check = [&]<int N>(std::integral_constant<int, N>) {
        for (auto const& micro_steps : numbers) {
            CAPTURE(N, micro_steps);
            check_all(observe([&](Hosts& hosts, std::size_t rank) {
                          Stage<N> engine(hosts, parameters,
                                          {.reduction = {.schedule = every_micro_step}});
                          engine.begin_step();
                          for (std::size_t number = 0; number < micro_steps[rank]; ++number) {
                              engine.begin_micro_step(); // no rank knows which is the last one
                              run_micro_step(engine, rank, 0, number);
                              engine.end_micro_step();
                          }
                          (void)engine.step(0.01).report();
                      }),
                      "CollectiveMismatch", "number of micro-steps");
        }
    };
    check(std::integral_constant<int, 2>());
    check(std::integral_constant<int, 3>());
}

namespace {

template <class Engine>
void check_last_micro_step() {
    std::vector<LoopbackCommunicator> shards[] = {
        LoopbackCommunicator::make_group(2, test_time_out),
        LoopbackCommunicator::make_group(2, test_time_out)};
    std::vector<LoopbackCommunicator> replicas[] = {
        LoopbackCommunicator::make_group(2, test_time_out),
        LoopbackCommunicator::make_group(2, test_time_out)};
    auto const outcomes = run_and_observe(4, [&](LoopbackCommunicator& everyone) {
        auto const rank = static_cast<std::size_t>(everyone.rank());
        Hosts hosts(everyone, shards[rank / 2][rank % 2], replicas[rank % 2][rank / 2]);
        run_rank(hosts, [&](Hosts& groups) {
            Engine engine(groups, registration<float>(toy_specs()));
            (void)run_step(engine, rank, 0, rank == 3 ? 2 : 1).report();
        });
    });
    for (std::size_t rank = 0; rank < world; ++rank) {
        Outcome const& outcome = outcomes.ranks[rank];
        CHECK(outcome.type == (rank < 2 ? "Aborted" : "CollectiveMismatch"));
        CHECK_THAT(outcome.message, contains_text("'last gradients of bucket"));
        CHECK_THAT(outcome.message, contains_text("('gradients of bucket"));
    }
}

} // namespace

TEST_CASE("A rank that announces another last micro-step than its group is told over parts that "
          "know nothing of each other") {
    check_last_micro_step<Stage<3>>();
    check_last_micro_step<ZeroStage<3, Hosts, Wire<Plain, Int8Blocks>>>();
}

TEST_CASE("A rank that would send floats between replicas, and others that would not, are told") {
    std::vector<Outcome> outcomes(world);
    (void)outcome_of([&] {
        run_ranks(static_cast<int>(world), test_time_out, [&](LoopbackCommunicator& everyone) {
            auto const run = [&]<class Role>(Role) {
                Groups<LoopbackCommunicator, Role> groups(everyone, {.shard = 2});
                outcomes[static_cast<std::size_t>(everyone.rank())] = outcome_of([&] {
                    ZeroStage<2, Parameters<bfloat16>, Groups<LoopbackCommunicator, Role>> const
                        engine(groups, registration<bfloat16>(toy_specs()));
                });
            };
            everyone.rank() == 3 ? run(HybridInFloat()) : run(Hybrid());
        });
    });
    check_all(outcomes, "LayoutMismatch", "communicator");
}

TEST_CASE("An infinity on one rank of one group skips the step on every rank, and replicas stay "
          "equal") {
    std::vector<std::vector<std::vector<float>>> parameters(world);
    std::vector<std::size_t> skipped(world);
    std::vector<float> scales(world);
    check_all(observe([&](Hosts& hosts, std::size_t rank) {
                  Stage<3> engine(hosts, registration<float>(toy_specs()),
                                  {.loss_scaler = {.initial_scale = 16.0F, .hysteresis = 1}});
                  for (std::uint64_t step = 0; step < 4; ++step) {
                      engine.begin_step();
                      scales[rank] = engine.loss_scale();
                      float const scale = step == 1 && rank == 2
                                              ? std::numeric_limits<float>::infinity()
                                              : scales[rank];
                      for (auto const micro_step : engine.micro_steps(1)) {
                          run_micro_step(engine, rank, step, micro_step, scale);
                      }
                      skipped[rank] += engine.step(0.01).report().is_skipped ? 1 : 0;
                  }
                  parameters[rank] = full_parameters(engine);
              }),
              "returned", "");
    CHECK(skipped == std::vector<std::size_t>(world, 1));
    CHECK(scales == std::vector<float>(world, 8.0F));
    for (auto const& of_rank : parameters) {
        CHECK(of_rank == parameters[0]);
    }
}

TEST_CASE("A step without a gradient on any rank of any group is told, and one rank with "
          "gradients is enough") {
    for (std::size_t const reports : {std::size_t{3}, world}) {
        std::vector<Outcome> told(world); // in the body: an exception that leaves it aborts others
        auto const outcomes = observe([&](Hosts& hosts, std::size_t rank) {
            Stage<2> engine(hosts, registration<float>(toy_specs()));
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                if (rank == reports) {
                    run_micro_step(engine, rank, 0, micro_step, engine.loss_scale());
                }
            }
            told[rank] = outcome_of([&] { (void)engine.step(0.01).report(); });
            (void)run_step(engine, rank, 1).report(); // the engine continues
        });
        check_all(told, reports == 3 ? "returned" : "NoGradients", "");
        check_all(outcomes, "returned", "");
    }
}

TEST_CASE("An exception of the model on one rank reaches the ranks of every group with its text") {
    for (std::size_t const fails : {std::size_t{0}, std::size_t{3}}) {
        auto const outcomes = observe([&](Hosts& hosts, std::size_t rank) {
            Stage<3> engine(hosts, registration<float>(toy_specs()));
            for (std::uint64_t step = 0; step < 3; ++step) {
                if (step == 1 && rank == fails) {
                    throw std::runtime_error("no more data");
                }
                (void)run_step(engine, rank, step).report();
            }
        });
        for (std::size_t rank = 0; rank < world; ++rank) {
            CHECK(outcomes[rank].type == (rank == fails ? "other" : "Aborted"));
            CHECK_THAT(outcomes[rank].message, contains_text("no more data"));
        }
    }
}

TEST_CASE("What one rank writes to gathered parameters reaches the owners in every group") {
    std::vector<std::vector<float>> seen(world);
    std::vector<std::vector<float>> masters(world);
    check_all(observe([&](Hosts& hosts, std::size_t rank) {
                  Stage<3> engine(hosts, registration<float>(toy_specs()));
                  (void)run_step(engine, rank, 0).report();
                  {
                      auto gathered = gather(engine, {"first.bias"}, Gather::one_rank_writes, 3);
                      if (rank == 3) {
                          for (float& value : gathered.writable("first.bias")) {
                              value = 5.0F;
                          }
                      }
                  }
                  TrainingState state(engine);
                  for (auto const value : state.full_fp32_parameter(2)) {
                      masters[rank].push_back(value);
                  }
                  seen[rank] = full_parameters(engine)[2];
              }),
              "returned", "");
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(seen[rank] == std::vector<float>(7, 5.0F));
        CHECK(masters[rank] == seen[rank]);
    }
}

} // namespace zero::test::groups_failure_test
