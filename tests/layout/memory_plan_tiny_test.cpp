#include "plan_text.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

// Odd sizes 1, 63, 65 and 0 in one unit, float with two moments and no master weights: P = 129.
// One bucket in reverse order: 0 -> 0, 65 -> 128, 63 -> 64, 1 -> 64: 256 elements; starts: 65 at 0,
// 63 at 128, 1 at 192.
//     W = 1: 256 elements, 127 of them padding; rank 0 owns all.
// W = 4: 64 per rank. Contents: 64 (of the 65), 1, 63, 1.
//     W = 64: a shard is 64 (256 / 64 = 4, rounded up), 4,096 elements, 3,967 padding; ranks 0 to 3
//     as on four, the others have none.
// Leases: one bucket is open at once, and one more for overlap; stage 3 gathers up to twice the one
// bucket of a unit.

namespace zero::test::memory_plan_tiny_test {

namespace {

constexpr ElementSizes single_precision{4, 4, 4, 4, 0, 8};

std::string text(std::size_t world, std::size_t rank, int stage) {
    std::vector<ParameterSpec> const model = test::model_of_sizes({1, 63, 65, 0}, 4);
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model, {world, 4, true});
    return test::text_of(test::default_plan(layout, rank, stage, single_precision));
}

} // namespace

TEST_CASE("The plan of a tiny model on one rank is the same in stages 0 to 2") {
    // 129 * 4 = 516, 127 * 4 = 508; moments 129 * 8 = 1,032, 127 * 8 = 1,016; leases 2 * 256 * 4 =
    // 2,048.
    std::string const expected =
        "parameters 516+508, gradients 516+508, optimizer state 1032+1016, gradient leases 1024+0";
    CHECK(text(1, 0, 0) == expected);
    CHECK(text(1, 0, 1) == expected);
    CHECK(text(1, 0, 2) == expected);
    CHECK(text(1, 0, 3) == expected + ", parameter leases 1024+0");
}

TEST_CASE("The plan of a tiny model on four ranks gives each rank the elements of its extent") {
    CHECK(text(4, 2, 0)
          == "parameters 516+508, gradients 516+508, optimizer state 1032+1016, gradient leases "
             "1024+0");
    // Rank 0: 64 elements of 64; rank 1: 1; rank 2: 63; rank 3: 1. Moments of eight bytes.
    CHECK(
        text(4, 0, 1)
        == "parameters 516+508, gradients 516+508, optimizer state 512+0, gradient leases 1024+0");
    CHECK(
        text(4, 1, 1)
        == "parameters 516+508, gradients 516+508, optimizer state 8+504, gradient leases 1024+0");
    CHECK(
        text(4, 2, 1)
        == "parameters 516+508, gradients 516+508, optimizer state 504+8, gradient leases 1024+0");
    CHECK(
        text(4, 3, 1)
        == "parameters 516+508, gradients 516+508, optimizer state 8+504, gradient leases 1024+0");
    CHECK(text(4, 0, 2)
          == "parameters 516+508, gradients 256+0, optimizer state 512+0, gradient leases 1024+0");
    CHECK(text(4, 2, 2)
          == "parameters 516+508, gradients 252+4, optimizer state 504+8, gradient leases 1024+0");
    CHECK(text(4, 0, 3)
          == "parameters 256+0, gradients 256+0, optimizer state 512+0, gradient leases 1024+0, "
             "parameter leases 1024+0");
    CHECK(text(4, 3, 3)
          == "parameters 4+252, gradients 4+252, optimizer state 8+504, gradient leases 1024+0, "
             "parameter leases 1024+0");
}

TEST_CASE("The plan of a tiny model on 64 ranks is mostly padding") {
    // 3,967 * 4 = 15,868; 3,967 * 8 = 31,736; leases 2 * 4,096 * 4 = 32,768.
    CHECK(text(64, 9, 0)
          == "parameters 516+15868, gradients 516+15868, optimizer state 1032+31736, gradient "
             "leases 16384+0");
    CHECK(text(64, 9, 1)
          == "parameters 516+15868, gradients 516+15868, optimizer state 0+512, gradient leases "
             "16384+0");
    CHECK(
        text(64, 2, 2)
        == "parameters 516+15868, gradients 252+4, optimizer state 504+8, gradient leases 16384+0");
    CHECK(text(64, 63, 3)
          == "parameters 0+256, gradients 0+256, optimizer state 0+512, gradient leases 16384+0, "
             "parameter leases 16384+0");
}

TEST_CASE("The round-robin plan of a tiny model follows the owners") {
    // W = 2, turns: 0, 65, 63, 1 -> owners 0, 1, 0, 1. Rank 0: 63 of 64; rank 1: 66 of 192.
    std::vector<ParameterSpec> const model = test::model_of_sizes({1, 63, 65, 0}, 4);
    auto const layout = make_layout<RoundRobinPartitioner, SingleBucketer>(model, {2, 4, false});
    CHECK(test::text_of(test::default_plan(layout, 0, 2, single_precision))
          == "parameters 516+508, gradients 252+4, optimizer state 504+8, gradient leases 1024+0");
    CHECK(test::text_of(test::default_plan(layout, 1, 2, single_precision))
          == "parameters 516+508, gradients 264+504, optimizer state 528+1008, gradient leases "
             "1024+0");
}

TEST_CASE("The plan of a tiny adopted block has the caller's parameters and one staged bucket") {
    // W = 1, starts 0, 1, 64: [0, 128) is direct, the last of 129 elements is staged. The buckets
    // have 128 + 64 elements, 63 of them padding.
    std::vector<ParameterSpec> const model = test::model_of_sizes({1, 63, 65, 0}, 4);
    auto const layout = make_adopted_layout<SingleBucketer>(
        model, std::vector<std::size_t>{0, 1, 64, 129}, {1, 4, false});
    // Both buckets are open at once, and after the staged one is the whole gradient of the
    // parameter of 65 elements that both hold: (128 + 64 + 128) * 4 = 1280.
    std::string const states = "parameters (caller's) 516+0, gradients 516+252, optimizer state "
                               "1032+504, gradient leases 1280+0";
    CHECK(test::text_of(test::default_plan(layout, 0, 0, single_precision, Storage::adopted))
          == states);
    CHECK(test::text_of(test::default_plan(layout, 0, 1, single_precision, Storage::adopted))
          == states + ", parameter leases 256+0");
    CHECK(test::text_of(test::default_plan(layout, 0, 2, single_precision, Storage::adopted))
          == states + ", parameter leases 256+0");
}

TEST_CASE("A model of empty parameters has gradient leases of 0 bytes") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        test::model_of_sizes({0, 0}), {4, 4, true});
    StageRow const row = stage_row(2, ReductionSchedule::every_micro_step);
    CHECK(count_layout(layout, 1, row, Storage::owned, 1).gradient_lease_elements == 0);
    CHECK(test::default_plan(layout, 1, 2, single_precision).engine_bytes() == 0);
}

TEST_CASE("The plan of a model without parameters is empty in every stage") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>({}, {4, 4, true});
    for (int stage = 0; stage < 4; ++stage) {
        CHECK(test::default_plan(layout, 1, stage, single_precision).engine_bytes() == 0);
    }
}

} // namespace zero::test::memory_plan_tiny_test
