#include "stage/whole_tensor_model.hpp"

#include "support/catch.hpp"
#include "support/snapshot.hpp"

#include <zero/layout/whole_matrix_partitioner.hpp>

#include <limits>
#include <random>
#include <string>

// LAMB and Muon through the engine: the owner of a parameter changes no bit.

namespace zero::test::whole_tensor_test {

TEMPLATE_TEST_CASE("A whole-tensor optimizer gives the same bits in every stage, for every "
                   "assignment of parameters to ranks",
                   "[stage][tensor]", Lamb, Muon) {
    auto const expected = trained_whole<ZeroStage<0, RoundRobinPartitioner, TestType>>(3);
    // The default partitioner cuts parameters, so every rank updates all of them.
    CHECK(trained_whole<ZeroStage<0, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<1, RoundRobinPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<1, BalancedPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<2, RoundRobinPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<2, BalancedPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<3, RoundRobinPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<3, BalancedPartitioner, TestType>>(3) == expected);
    CHECK_FALSE(trained_whole<ZeroStage<3, BalancedPartitioner, TestType>>(3, 0.011) == expected);
}

TEMPLATE_TEST_CASE("A whole-tensor optimizer gives the same bits in every stage for bfloat16 "
                   "parameters with float master weights",
                   "[stage][tensor]", Lamb, Muon) {
    using Types = Parameters<bfloat16>;
    auto const expected = trained_whole<ZeroStage<0, Types, RoundRobinPartitioner, TestType>>(3);
    CHECK(trained_whole<ZeroStage<1, Types, BalancedPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<2, Types, RoundRobinPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<3, Types, BalancedPartitioner, TestType>>(3) == expected);
    CHECK(trained_whole<ZeroStage<2, Types, SplitMasterWeights, BalancedPartitioner, TestType>>(3)
          == expected);
    CHECK_FALSE(
        trained_whole<ZeroStage<2, Types, NoMasterWeights, BalancedPartitioner, TestType>>(3)
        == expected);
}

namespace {

/// Returns matrices and other parameters, some of them so large that they are spread.
std::vector<ParameterSpec> random_specs(std::mt19937& random) {
    std::vector<ParameterSpec> specs{{.name = "first", .elements = 12 * 13, .rows = 12}};
    std::size_t const count = 2 + random() % 9;
    for (std::size_t index = 1; index < count; ++index) {
        ParameterSpec spec{.name = "p" + std::to_string(index),
                           .units = {index * 4 / count},
                           .trainable = random() % 6 != 0};
        if (random() % 2 == 0) {
            spec.rows = 1 + random() % 24;
            spec.elements = spec.rows * (1 + random() % 40);
        } else {
            spec.elements = random() % 3 == 0 ? random() % 100 : random() % 5000;
        }
        if (random() % 5 == 0 && spec.units[0] != 0) {
            spec.units = {0, spec.units[0]};
        }
        specs.push_back(spec);
    }
    for (std::size_t unit = 0; unit < 4; ++unit) { // each is used
        specs.push_back(
            {.name = "unit" + std::to_string(unit), .elements = random() % 300, .units = {unit}});
    }
    return specs;
}

template <int N, class... Policies>
void check_whole_matrices(std::mt19937& random) {
    for (int round = 0; round < 6; ++round) {
        auto const specs = random_specs(random);
        int const world = std::vector<int>{1, 2, 3, 5}[random() % 4];
        CAPTURE(N, round, world);
        auto const expected =
            trained_whole<ZeroStage<0, Muon, Policies...>>(world, 0.01, Storage::owned, specs);
        using Stage = ZeroStage<N, WholeMatrixPartitioner, Muon, Policies...>;
        typename Stage::Options options;
        options.poison = true;
        if constexpr (N == 3) {
            options.gather.persistence_threshold = random() % 2 * 700;
        } else {
            options.bucketer.bucket_bytes = 2000 + random() % 8000;
            options.storage = random() % 2 == 0 ? Storage::owned : Storage::scattered;
        }
        CHECK(trained<Stage>(world, options, {.learning_rate = 0.01, .specs = specs}) == expected);
        CHECK_FALSE(trained<Stage>(world, options, {.learning_rate = 0.011, .specs = specs})
                    == expected);
    }
}

} // namespace

TEST_CASE("Muon with random models whose embeddings are cut gives the bits of stage 0",
          "[stage][tensor]") {
    std::mt19937 random(11);
    check_whole_matrices<1>(random);
    check_whole_matrices<2>(random);
    check_whole_matrices<2, Parameters<bfloat16>, OptimizerState<bfloat16>>(random);
    check_whole_matrices<3>(random);
    check_whole_matrices<3, Parameters<bfloat16>, SplitMasterWeights>(random);
}

TEMPLATE_TEST_CASE("Scattered parameters are also updated as a whole", "[stage][tensor]", Lamb,
                   Muon) {
    using Stage = ZeroStage<2, RoundRobinPartitioner, TestType>;
    CHECK(trained_whole<Stage>(3, 0.01, Storage::scattered) == trained_whole<Stage>(3));
}

TEST_CASE("Muon reads the rows of a registered matrix", "[stage][tensor]") {
    using Stage = ZeroStage<2, RoundRobinPartitioner, Muon>;
    auto none = whole_specs();
    none[1].rows = 0;
    auto const expected = trained_whole<Stage>(2);
    CHECK_FALSE(trained_whole<Stage>(2, 0.01, Storage::owned, none) == expected);
    auto others = whole_specs();
    others[1].rows = 25; // instead of 20 x 25
    CHECK_FALSE(trained_whole<Stage>(2, 0.01, Storage::owned, others) == expected);
    CHECK(trained_whole<Stage>(2, 0.01, Storage::owned, whole_specs()) == expected);
}

TEMPLATE_TEST_CASE("A skipped step changes no bit of a whole-tensor optimizer", "[stage][tensor]",
                   Lamb, Muon) {
    using Stage = ZeroStage<2, RoundRobinPartitioner, TestType>;
    auto const ranks = on_ranks<std::vector<std::vector<std::uint32_t>>>(
        2, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            Stage engine(communicator, registration<float>(whole_specs()),
                         {.non_finite = NonFinite::skip});
            std::vector<std::vector<std::uint32_t>> seen;
            (void)run_step(engine, rank, 0);
            seen.push_back(snapshot(engine));
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const gradients = engine.gradients(1);
                gradients[1][3] += std::numeric_limits<float>::infinity();
                engine.gradients_ready(1);
            }
            (void)engine.step(0.01);
            seen.push_back(snapshot(engine));
            (void)run_step(engine, rank, 1);
            seen.push_back(snapshot(engine));
            return seen;
        });
    for (auto const& seen : ranks) {
        CHECK(seen[0] == seen[1]);
        CHECK(seen[1] != seen[2]);
    }
}

} // namespace zero::test::whole_tensor_test
