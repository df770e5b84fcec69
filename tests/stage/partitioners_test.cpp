#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <random>

// The partitioner changes no bit of the training, in any stage.

namespace zero::test::partitioners_test {

namespace {

template <class Stage>
Trained run(int world, decltype(Stage::Options::bucketer) bucketer, double learning_rate = 0.01,
            decltype(Stage::Options::partitioner) partitioner = {}) {
    return trained<Stage>(world,
                          {.gradient_clipping = 1.0F,
                           .poison = true,
                           .partitioner = partitioner,
                           .bucketer = bucketer,
                           .reduction = {.schedule = ReductionSchedule::every_micro_step}},
                          {.steps = 3, .learning_rate = learning_rate});
}

constexpr std::size_t cap =
    1200; ///< in bytes: several buckets, and the largest parameter exceeds it

/// Compares a partitioner with `expected` under bucketers that it accepts.
template <int N, class Partitioner, class... Others>
void check_partitioner(int world, Trained const& expected) {
    CHECK(
        (run<ZeroStage<N, Partitioner, SizeCappedBucketer, Others...>>(world, {cap}) == expected));
    CHECK((run<ZeroStage<N, Partitioner, ParameterBucketer, Others...>>(world, {}) == expected));
}

/// Compares `ProportionalPartitioner` with random shares, of which one may be 0.
template <int N, class... Others>
void check_shares(int world, Trained const& expected) {
    std::mt19937 random(static_cast<unsigned>(10 * world + N));
    for (int round = 0; round < 3; ++round) {
        ProportionalPartitionerOptions options;
        for (int rank = 0; rank < world; ++rank) {
            options.shares.push_back(0.5 + static_cast<double>(random() % 8));
        }
        if (round == 2 && world > 1) {
            options.shares[random() % options.shares.size()] = 0;
        }
        using Capped = ZeroStage<N, ProportionalPartitioner, SizeCappedBucketer, Others...>;
        CHECK((run<Capped>(world, {cap}, 0.01, options) == expected));
    }
    using Whole = ZeroStage<N, ProportionalPartitioner, ParameterBucketer, Others...>;
    CHECK((run<Whole>(world, {}) == expected)); // equal shares
}

template <int N, class... Others>
void check_stage(int world) {
    Trained const expected =
        run<ZeroStage<0, ContiguousPartitioner, SizeCappedBucketer, Others...>>(world, {cap});
    check_partitioner<N, ContiguousPartitioner, Others...>(world, expected);
    check_partitioner<N, RoundRobinPartitioner, Others...>(world, expected);
    check_partitioner<N, BalancedPartitioner, Others...>(world, expected);
    check_partitioner<N, WholeMatrixPartitioner, Others...>(world, expected);
    if constexpr (N != 3) {
        check_partitioner<N, WholeGroupPartitioner, Others...>(world, expected);
        check_partitioner<N, DealtGroupPartitioner, Others...>(world, expected);
    }
    check_shares<N, Others...>(world, expected);
    CHECK((run<ZeroStage<N, PerTensorPartitioner, Others...>>(world, {}) == expected));
    CHECK((run<ZeroStage<N, BalancedPartitioner, ParameterBucketer, Others...>>(world, {})
           == expected));
    CHECK((run<ZeroStage<N, PerTensorPartitioner, Others...>>(world, {}, 0.011) != expected));
}

} // namespace

TEMPLATE_TEST_CASE_SIG("Every partitioner and bucketer trains float parameters to the bits of "
                       "stage 0 with the contiguous partitioner",
                       "", ((int N), N), 0, 1, 2, 3) {
    for (int const world : {1, 2, 3, 5}) {
        INFO(world << " ranks");
        check_stage<N>(world);
    }
}

TEMPLATE_TEST_CASE_SIG("Every partitioner and bucketer trains bfloat16 parameters with master "
                       "weights to the same bits",
                       "", ((int N), N), 0, 1, 2, 3) {
    check_stage<N, Parameters<bfloat16>>(3);
}

TEST_CASE("The states of ranks that contradict each other are not joined") {
    Trained const first{{{1.0F, 2.0F}}, {{7.0F, 0.0F}}, {{5.0F, 0.0F}}, {}};
    Trained second{{{1.0F, 2.0F}}, {{0.0F, 8.0F}}, {{5.0F, -0.0F}}, {}};
    Trained const joined = Trained::joined({first, second});
    CHECK((joined == Trained{{{1.0F, 2.0F}}, {{7.0F, 8.0F}}, {{5.0F, -0.0F}}, {}}));
    CHECK_FALSE((joined == Trained{{{1.0F, 2.0F}}, {{7.0F, 8.0F}}, {{5.0F, 0.0F}}, {}}));
    second.parameters[0][1] = 2.5F;
    CHECK_THROWS_WITH(Trained::joined({first, second}), "the ranks have different parameters");
    second.parameters[0][1] = 2.0F;
    second.masters[0][0] = 6.0F;
    CHECK_THROWS_WITH(Trained::joined({first, second}),
                      "two ranks own an element and have different values");
}

} // namespace zero::test::partitioners_test
