#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/whole_state.hpp"

#include <zero/zero.hpp>

#include <optional>
#include <vector>

// Who owns what changes no bit of the training, in any stage.

namespace zero::test::partitioners_test {

namespace {

using State = std::optional<std::vector<std::uint32_t>>;

/// Parameters, master weights and moments of all ranks after three steps, by element of the model.
template <class Stage>
State trained(int world, decltype(Stage::Options::bucketer) bucketer, double learning_rate = 0.01) {
    using T = typename Stage::Registration;
    return whole_state(on_ranks<OwnedState>(world, [&](LoopbackCommunicator& communicator) {
        typename Stage::Options options{
            .gradient_clipping = 1.0F,
            .poison = true,
            .reduction = {.schedule = ReductionSchedule::every_micro_step}};
        options.bucketer = bucketer;
        Stage engine(communicator,
                     std::vector<T>(
                         registration<typename Stage::ParameterType, typename Stage::GradientType>(
                             toy_specs())),
                     options);
        for (std::uint64_t step = 0; step < 3; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                           learning_rate);
        }
        return owned_state(engine);
    }));
}

constexpr std::size_t cap = 1200; ///< bytes: several buckets, the largest parameter above it

/// Compares one partitioner with `expected` under the bucketers that it goes with.
template <int N, class Partitioner, class... Others>
void check_partitioner(int world, State const& expected) {
    CHECK((trained<ZeroStage<N, Partitioner, SizeCappedBucketer, Others...>>(world, {cap})
           == expected));
    CHECK(
        (trained<ZeroStage<N, Partitioner, ParameterBucketer, Others...>>(world, {}) == expected));
}

template <int N, class... Others>
void check_stage(int world) {
    State const expected =
        trained<ZeroStage<0, ContiguousPartitioner, SizeCappedBucketer, Others...>>(world, {cap});
    REQUIRE(expected.has_value());
    check_partitioner<N, ContiguousPartitioner, Others...>(world, expected);
    check_partitioner<N, RoundRobinPartitioner, Others...>(world, expected);
    check_partitioner<N, BalancedPartitioner, Others...>(world, expected);
    if constexpr (N != 3) {
        check_partitioner<N, WholeGroupPartitioner, Others...>(world, expected);
        check_partitioner<N, DealtGroupPartitioner, Others...>(world, expected);
    }
    CHECK((trained<ZeroStage<N, PerTensorPartitioner, Others...>>(world, {}) == expected));
    CHECK((trained<ZeroStage<N, BalancedPartitioner, ParameterBucketer, Others...>>(world, {})
           == expected));
    CHECK((trained<ZeroStage<N, PerTensorPartitioner, Others...>>(world, {}, 0.011) != expected));
}

} // namespace

TEMPLATE_TEST_CASE_SIG("Every partitioner and bucketer trains float parameters to the bits of "
                       "stage 0 with the contiguous one",
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

TEST_CASE("The comparison of whole states notices a rank that differs") {
    OwnedState first{{{1.0F, 2.0F}}, {{{7}, {}}}, 3};
    OwnedState second{{{1.0F, 2.0F}}, {{{}, {8}}}, 3};
    auto const merged = whole_state({first, second});
    REQUIRE(merged.has_value());
    CHECK(*merged == std::vector<std::uint32_t>{0x3f800000, 1, 7, 0x40000000, 1, 8, 3});
    second.full[0][1] = 2.5F;
    CHECK_FALSE(whole_state({first, second}).has_value());
    second.full[0][1] = 2.0F;
    second.owned[0][0] = {6};
    CHECK_FALSE(whole_state({first, second}).has_value());
}

} // namespace zero::test::partitioners_test
