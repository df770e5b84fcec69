#include "gradient_codes_model.hpp"
#include "support/catch.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/describe.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// Gradients in codes: sums are a straight-line function of what the ranks wrote, in every stage,
// with every partitioner, bucket size and storage, on every number of ranks.

namespace zero::test::gradient_codes_test {

namespace {

using namespace gradient_codes;

template <int N, class T, class C, class... Policies>
using Coded = ZeroStage<N, Parameters<T>, Wire<Plain, C>, Policies...>;

constexpr ReductionSchedule schedules[] = {ReductionSchedule::boundary,
                                           ReductionSchedule::every_micro_step};

/// Whether the sums of two steps are the expected ones on every rank.
template <class C, class Stage>
bool is_right(int world, ReductionSchedule schedule, std::uint64_t micro_steps,
              typename Stage::Options const& given = {}) {
    auto const right = on_ranks<int>(world, [&](LoopbackCommunicator& all) {
        using T = typename Stage::ParameterType;
        auto const rank = static_cast<std::uint64_t>(all.rank());
        auto options = given;
        options.reduction.schedule = schedule;
        auto parameters = registration<T>(toy_specs());
        auto const memory = provide_memory(parameters, options);
        Stage engine(all, parameters, options);
        bool is_equal = true;
        for (std::uint64_t step = 0; step < 2; ++step) {
            write_gradients(engine, rank, step, micro_steps);
            auto const expected = expected_sums<T, C>(world, schedule, step, micro_steps);
            is_equal = same_bits(full_sums(engine), expected) && is_equal;
            (void)engine.step(0.01).report();
        }
        return is_equal ? 1 : 0;
    });
    return right == std::vector<int>(static_cast<std::size_t>(world), 1);
}

template <class T, class C>
void check_bits() {
    for (int const world : {1, 2, 3, 5}) {
        for (auto const schedule : schedules) {
            CAPTURE(world, name_of(schedule));
            CHECK((is_right<C, Coded<1, T, C>>(world, schedule, 2)));
            CHECK((is_right<C, Coded<2, T, C>>(world, schedule, 3)));
            CHECK((is_right<C, Coded<3, T, C>>(world, schedule, 2)));
            CHECK((is_right<C, Coded<2, T, C, RoundRobinPartitioner>>(world, schedule, 2)));
            CHECK((is_right<C, Coded<1, T, C, WholeGroupPartitioner>>(world, schedule, 1)));
            CHECK((is_right<C, Coded<3, T, C, BalancedPartitioner>>(world, schedule, 2)));
            CHECK((is_right<C, Coded<2, T, C, SingleBucketer>>(world, schedule, 2)));
            CHECK((is_right<C, Coded<1, T, C>>(world, schedule, 2,
                                               {.bucketer = {.bucket_bytes = 256}})));
            CHECK((is_right<C, Coded<2, T, C>>(world, schedule, 2,
                                               {.storage = Storage::scattered, .poison = true})));
            CHECK((is_right<C, Coded<2, T, C>>(world, schedule, 1,
                                               {.reduction = {.wire_bytes = 300}})));
            CHECK((is_right<C, Coded<3, T, C, BalancedPartitioner>>(
                world, schedule, 2, {.poison = true, .reduction = {.wire_bytes = 0}})));
            CHECK((is_right<C, Coded<1, T, C>>(world, schedule, 1,
                                               {.reduction = {.one_micro_step = true}})));
        }
    }
}

} // namespace

TEST_CASE("Gradients in 8 bits have the same sums in every stage, with every partitioner, bucket "
          "size and storage, as what the ranks wrote says") {
    check_bits<bfloat16, Int8Blocks>();
}

TEST_CASE("Gradients in 4 bits have the same sums in every stage, with every partitioner, bucket "
          "size and storage, as what the ranks wrote says") {
    check_bits<float, Int4Blocks>();
}

TEST_CASE("Sums of plain gradients are others") { // or the comparisons show nothing
    auto const every = ReductionSchedule::every_micro_step;
    CHECK_FALSE((is_right<Int8Blocks, ZeroStage<2>>(2, every, 1)));
    CHECK_FALSE((is_right<Int8Blocks, Coded<2, float, Int4Blocks>>(2, every, 1)));
}

TEST_CASE("A sum lies within the bounds of the ranks' blocks around the sum of the gradients") {
    auto const right = on_ranks<int>(3, [](LoopbackCommunicator& all) {
        Coded<2, float, Int4Blocks> engine(all, registration<float>(toy_specs()));
        write_gradients(engine, static_cast<std::uint64_t>(all.rank()), 0, 1);
        auto const sums = full_sums(engine);
        bool is_within = true;
        bool is_rounded = false;
        for (std::size_t p = 0; p < sums.size(); ++p) {
            for (std::size_t i = 0; i < sums[p].size(); ++i) {
                double exact = 0;
                double bound = 0;
                for (std::uint64_t rank = 0; rank < 3; ++rank) {
                    std::size_t const begin = i / 64 * 64;
                    float largest = 0;
                    for (std::size_t j = begin; j < std::min(begin + 64, sums[p].size()); ++j) {
                        largest = std::max(largest, std::abs(written(rank, p, j, 0, 0)));
                    }
                    exact += static_cast<double>(written(rank, p, i, 0, 0));
                    bound += static_cast<double>(Int4Blocks::error_bound(largest));
                }
                double const error = std::abs(static_cast<double>(sums[p][i]) - exact);
                is_within = is_within && error <= bound * (1 + 1e-6);
                is_rounded = is_rounded || error > bound * 0.5;
            }
        }
        (void)engine.step(0.01).report();
        return is_within && is_rounded ? 1 : 0;
    });
    CHECK(right == std::vector<int>(3, 1));
}

namespace {

/// A value that is not finite skips the step, on whichever rank it is, and names its parameter.
template <int N>
void check_non_finite(float value) {
    for (std::uint64_t const bad : {0U, 2U}) {
        auto const right = on_ranks<int>(3, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            Coded<N, bfloat16, Int8Blocks, DynamicLossScaler> engine(
                all, registration<bfloat16>(toy_specs()));
            auto const before = full_parameters(engine);
            write_gradients(engine, rank, 0, 2, [&](std::size_t parameter, auto const& gradient) {
                if (rank == bad && parameter == 3) {
                    gradient[128] = from_float<bfloat16>(value);
                }
            });
            auto const report = engine.step(0.01).report();
            bool const is_named = report.first_non_finite == 300 + 500 + 7 + 128;
            bool const is_same = full_parameters(engine) == before;
            bool const is_alone = report.non_finite_count == 1; // the block has one element
            return report.is_skipped && is_named && is_same && is_alone ? 1 : 0;
        });
        CHECK(right == std::vector<int>(3, 1));
    }
}

} // namespace

TEST_CASE("A NaN or an infinity in a gradient skips the step and its parameter is named") {
    float const infinity = std::numeric_limits<float>::infinity();
    check_non_finite<1>(infinity);
    check_non_finite<2>(-infinity);
    check_non_finite<3>(std::numeric_limits<float>::quiet_NaN());
}

TEST_CASE("Checked communicators and secondary copies change no sum") {
    auto const expected =
        expected_sums<float, Int8Blocks>(4, ReductionSchedule::every_micro_step, 0, 2);
    auto const checked = on_ranks<Values>(4, [](LoopbackCommunicator& all) {
        Checked<LoopbackCommunicator> careful(all);
        Coded<2, float, Int8Blocks, Checked<LoopbackCommunicator>> engine(
            careful, registration<float>(toy_specs()));
        write_gradients(engine, static_cast<std::uint64_t>(all.rank()), 0, 2);
        auto sums = full_sums(engine);
        (void)engine.step(0.01).report();
        return sums;
    });
    CHECK(same_bits(checked[0], expected));
    using Hosts = Groups<LoopbackCommunicator, Secondary>;
    std::vector<int> right(4);
    run_ranks<Hosts>(4, test_time_out, {.secondary = 2}, [&](Hosts& hosts) {
        auto const rank = static_cast<std::size_t>(hosts.rank());
        ZeroStage<3, Wire<Int8Blocks, Int8Blocks>, Hosts> engine(hosts,
                                                                 registration<float>(toy_specs()));
        write_gradients(engine, rank, 0, 2);
        right[rank] = same_bits(full_sums(engine), expected) ? 1 : 0;
        (void)engine.step(0.01).report();
    });
    CHECK(right == std::vector<int>(4, 1));
}

TEST_CASE("Ranks with other codecs of gradients are told, and so is a division") {
    std::vector<std::string> const messages =
        on_ranks<std::string>(2, [](LoopbackCommunicator& all) {
            try {
                if (all.rank() == 0) {
                    Coded<2, float, Int8Blocks> engine(all, registration<float>(toy_specs()));
                } else {
                    Coded<2, float, Int4Blocks> engine(all, registration<float>(toy_specs()));
                }
            } catch (LayoutMismatch const& error) {
                return std::string(error.what());
            }
            return std::string();
        });
    CHECK(messages[0].find("wire") != std::string::npos);
    CHECK(messages[1] == messages[0]);
    auto all = LoopbackCommunicator::make_group(1);
    CHECK_THROWS_WITH(
        (Coded<2, float, Int8Blocks>(all.front(), registration<float>(toy_specs()),
                                     {.reduction = {.predivide = 2.0F}})),
        contains_text("reduction.predivide is 2, and zero::Wire adds decoded gradients in "
                      "float"));
    CHECK((is_right<Int8Blocks, Coded<2, float16, Int8Blocks, NoLossScaler>>( // not divided
        8, ReductionSchedule::every_micro_step, 1)));
}

TEST_CASE("The description of a stage names the codec of gradients") {
    std::string const text = describe<Coded<2, float, Int4Blocks>>();
    CHECK(text.find(", gradients sent as Int4Blocks") != std::string::npos);
    CHECK(text.find("sent as codes, accumulated in float32") != std::string::npos);
    CHECK(describe<ZeroStage<2, Wire<>>>().find("codes") == std::string::npos);
}

} // namespace zero::test::gradient_codes_test
