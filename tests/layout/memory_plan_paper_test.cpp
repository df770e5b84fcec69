#include "plan_text.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

namespace zero::test::memory_plan_paper_test {

namespace {

/// bfloat16 parameters, gradients and accumulation; fp32 master weights and two moments: 2 + 2 + 4
/// + 8 = 16 bytes per parameter.
constexpr ElementSizes mixed_precision{2, 2, 2, 2, 4, 8};

/// The totals of one rank if P elements are cut into equal shards without padding.
constexpr LayoutTotals equal_shards(std::size_t elements, std::size_t world) {
    std::size_t const own = elements / world;
    return {elements, elements, elements, elements, own, own, own, own, 0, 0, 0, 0};
}

constexpr MemoryPlan plan(int stage, std::size_t elements, std::size_t world) {
    StageRow const row = stage_row(stage, stage < 2 ? ReductionSchedule::boundary
                                                    : ReductionSchedule::every_micro_step);
    return plan_memory(row, equal_shards(elements, world), mixed_precision, Storage::owned, false,
                       0);
}

constexpr std::size_t model_states(int stage, std::size_t elements, std::size_t world) {
    return plan(stage, elements, world).model_state_bytes();
}

} // namespace

TEST_CASE("The plan reproduces figure 1 of the ZeRO paper: 7.5 billion parameters on 64 ranks") {
    constexpr std::size_t parameters = 7'500'000'000;                   // / 64 = 117,187,500
    STATIC_REQUIRE(model_states(0, parameters, 64) == 120'000'000'000); // 120 GB
    STATIC_REQUIRE(model_states(1, parameters, 64)
                   == 31'406'250'000); // 31.4 GB = 4P + 12P / 64 = 30 + 1.40625
    STATIC_REQUIRE(model_states(2, parameters, 64)
                   == 16'640'625'000); // 16.6 GB = 2P + 14P / 64 = 15 + 1.640625
    STATIC_REQUIRE(model_states(3, parameters, 64) == 1'875'000'000); // 1.9 GB = 16P / 64
}

TEST_CASE("The plan is known at compile time, row by row") {
    constexpr MemoryPlan two = plan(2, 6400, 64); // 100 elements per rank
    STATIC_REQUIRE(two[BufferKind::parameters] == MemoryRow{12'800, 0, false});
    STATIC_REQUIRE(two[BufferKind::gradients] == MemoryRow{200, 0, false});
    STATIC_REQUIRE(two[BufferKind::master_weights] == MemoryRow{400, 0, false});
    STATIC_REQUIRE(two[BufferKind::optimizer_state] == MemoryRow{800, 0, false});
    STATIC_REQUIRE(two.engine_bytes() == 14'200);
}

TEST_CASE("For equal shards each stage takes the bytes of the paper: 16P, 4P + 12P/W, 2P + 14P/W, "
          "16P/W") {
    // P = 40,960 in one bucket: 10,240 per rank on 4 ranks, 640 on 64. 16P = 655,360.
    auto const model = test::model_of_sizes({40'960});
    std::size_t const expected[3][4] = {
        {655'360, 655'360, 655'360, 655'360}, // W = 1
        {655'360, 286'720, 225'280, 163'840}, // W = 4: 16P, 7P, 5.5P, 4P
        {655'360, 171'520, 90'880,
         10'240}}; // W = 64: 16P, 163,840 + 7,680, 81,920 + 8,960, 16 * 640
    std::size_t const worlds[3] = {1, 4, 64};
    for (std::size_t index = 0; index < 3; ++index) {
        auto const layout =
            make_layout<ContiguousPartitioner, UnitBucketer>(model, {worlds[index], 2, true});
        for (int stage = 0; stage < 4; ++stage) {
            for (std::size_t const rank : {std::size_t{0}, worlds[index] - 1}) {
                MemoryPlan const found = test::default_plan(layout, rank, stage, mixed_precision);
                CHECK(found.model_state_bytes() == expected[index][stage]);
                CHECK(found.model_state_bytes() == model_states(stage, 40'960, worlds[index]));
                CHECK(found[BufferKind::optimizer_state].padding_bytes == 0);
            }
        }
    }
}

TEST_CASE("Leases, wire and control have rows of their own and are not model states") {
    LayoutTotals totals = equal_shards(6400, 64);
    totals.wire_elements = 1000;
    totals.gradient_lease_elements = 3000;
    totals.parameter_lease_elements = 12'000;
    MemoryPlan const found = plan_memory(stage_row(3, ReductionSchedule::every_micro_step), totals,
                                         {2, 4, 2, 4, 4, 8}, Storage::owned, true, 77);
    CHECK(test::text_of(found)
          == "parameters 200+0, gradients 400+0, master weights 400+0, optimizer state 800+0, "
             "gradient leases 12000+0, parameter leases "
             "24000+0, "
             "wire 2000+0, control 77+0");
    CHECK(found.model_state_bytes() == 1'800);
    CHECK(found.engine_bytes() == 39'877);
}

TEST_CASE("Caller-owned memory is a row of the plan but not engine memory") {
    LayoutTotals totals = equal_shards(6400, 64);
    totals.all_padded = 7000;
    for (Storage const storage : {Storage::adopted, Storage::scattered}) {
        MemoryPlan const found = plan_memory(stage_row(1, ReductionSchedule::boundary), totals,
                                             mixed_precision, storage, false, 0);
        CHECK(found[BufferKind::parameters] == MemoryRow{12'800, 0, true});
        CHECK(found.model_state_bytes() == 12'800 + 12'800 + 400 + 800);
        CHECK(found.engine_bytes() == 12'800 + 400 + 800);
    }
}

TEST_CASE("A boundary schedule plans a full accumulation buffer in stages 2 and 3") {
    for (int const stage : {2, 3}) {
        StageRow const row = stage_row(stage, ReductionSchedule::boundary);
        MemoryPlan const found =
            plan_memory(row, equal_shards(6400, 64), mixed_precision, Storage::owned, false, 0);
        CHECK(found[BufferKind::gradients] == MemoryRow{12'800, 0, false});
        CHECK(found[BufferKind::optimizer_state] == MemoryRow{800, 0, false});
    }
}

} // namespace zero::test::memory_plan_paper_test
