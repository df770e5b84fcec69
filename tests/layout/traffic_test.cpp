#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/memory_plan.hpp>
#include <zero/layout/parameter_spec.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

namespace zero::test::traffic_test {

namespace {

constexpr auto boundary = ReductionSchedule::boundary;
constexpr auto every = ReductionSchedule::every_micro_step;

FlatLayout gpt2(test::Head head, std::size_t world) {
    return make_layout<ContiguousPartitioner, UnitBucketer>(test::gpt2_124m(head),
                                                            {world, 2, true});
}

/// The units acquired per micro-step: in order for the forward pass, in reverse for the backward
/// pass.
std::vector<std::size_t> twice_per_micro_step(std::size_t units, std::size_t micro_steps) {
    std::vector<std::size_t> acquired;
    for (std::size_t micro = 0; micro < micro_steps; ++micro) {
        for (std::size_t unit = 0; unit < units; ++unit) {
            acquired.push_back(unit);
            acquired.push_back(units - 1 - unit);
        }
    }
    return acquired;
}

} // namespace

TEST_CASE("Stages 0 to 2 move 2P'(W-1) elements in a step with one reduction") {
    // GPT-2 124M, tied, W = 4: P' = 124,439,808 without padding; P'(W-1) = 373,319,424.
    auto const layout = gpt2(test::Head::tied, 4);
    CHECK(step_traffic(layout, 0, boundary, 4, {}) == Traffic{0, 0, 746'638'848});
    for (int const stage : {1, 2}) {
        CHECK(step_traffic(layout, stage, boundary, 4, {}) == Traffic{373'319'424, 373'319'424, 0});
        CHECK(step_traffic(layout, stage, every, 1, {}) == Traffic{373'319'424, 373'319'424, 0});
    }
    CHECK(step_traffic(layout, 0, every, 1, {}).total() == 746'638'848);
    // With a separate head: P' = 163,037,184.
    auto const separate = gpt2(test::Head::separate, 4);
    CHECK(step_traffic(separate, 0, boundary, 1, {}) == Traffic{0, 0, 978'223'104});
    CHECK(step_traffic(separate, 2, every, 1, {}) == Traffic{489'111'552, 489'111'552, 0});
}

TEST_CASE("Each further reduction of an accumulation adds P'(W-1) in stages 0 to 2") {
    auto const layout = gpt2(test::Head::tied, 4);
    for (int const stage : {0, 1, 2}) {
        CHECK(step_traffic(layout, stage, every, 4, {}) == Traffic{1'493'277'696, 373'319'424, 0});
        CHECK(step_traffic(layout, stage, every, 5, {}).total()
                  - step_traffic(layout, stage, every, 4, {}).total()
              == 373'319'424);
    }
}

TEST_CASE("Stage 3 moves 3P'(W-1) in a micro-step without tied parameters if each unit is acquired "
          "twice") {
    auto const four = gpt2(test::Head::separate, 4);
    // P'(W-1) = 163,037,184 * 3 = 489,111,552.
    CHECK(step_traffic(four, 3, every, 1, twice_per_micro_step(14, 1))
          == Traffic{489'111'552, 978'223'104, 0});
    CHECK(step_traffic(four, 3, every, 1, twice_per_micro_step(14, 1)).total()
          == 3 * 489'111'552UL);
    CHECK(step_traffic(four, 3, every, 2, twice_per_micro_step(14, 2)).total()
          == 6 * 489'111'552UL);
    // W = 64: the 14 buckets are padded to 163,069,952; times 63 is 10,273,406,976.
    auto const many = gpt2(test::Head::separate, 64);
    CHECK(step_traffic(many, 3, every, 1, twice_per_micro_step(14, 1))
          == Traffic{10'273'406'976, 20'546'813'952, 0});
    // A boundary schedule reduces once but gathers in every micro-step.
    CHECK(step_traffic(four, 3, boundary, 2, twice_per_micro_step(14, 2))
          == Traffic{489'111'552, 1'956'446'208, 0});
}

TEST_CASE("Stage 3 gathers a tied parameter for each of its units") {
    // W = 4: twice (124,439,808 + 38,597,376) * 3 = 978,223,104.
    CHECK(step_traffic(gpt2(test::Head::tied, 4), 3, every, 1, twice_per_micro_step(14, 1))
          == Traffic{373'319'424, 978'223'104, 0});
    // W = 64: P' = 124,473,344, the embedding 38,600,704: 63 * P' and 126 * (P' + 38,600,704).
    CHECK(step_traffic(gpt2(test::Head::tied, 64), 3, every, 1, twice_per_micro_step(14, 1))
          == Traffic{7'841'820'672, 20'547'330'048, 0});
}

TEST_CASE("Stage 3 counts only units that were acquired") {
    auto const layout = gpt2(test::Head::tied, 4);
    // Unit 0: wte and wpe; one block.
    std::size_t const acquired[] = {0, 5};
    CHECK(step_traffic(layout, 3, every, 1, acquired).all_gather
          == 3 * (38'597'376UL + 786'432 + 7'087'872));
    CHECK(step_traffic(layout, 3, every, 1, {}).all_gather == 0);
}

TEST_CASE("A single rank moves nothing in any stage") {
    for (int const stage : {0, 1, 2, 3}) {
        CHECK(step_traffic(gpt2(test::Head::tied, 1), stage, every, 3, twice_per_micro_step(14, 3))
              == Traffic{0, 0, 0});
        CHECK(
            step_traffic(gpt2(test::Head::tied, 1), stage, boundary, 3, twice_per_micro_step(14, 3))
            == Traffic{0, 0, 0});
    }
}

TEST_CASE("Frozen parameters are gathered in stage 3 and not moved in other stages") {
    auto model = test::model_of_sizes({1000, 500});
    model[0].trainable = false;
    // W = 2: 1000 -> 1024, 500 -> 512.
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model, {2, 4, true});
    CHECK(step_traffic(layout, 0, boundary, 1, {}) == Traffic{0, 0, 1024});
    CHECK(step_traffic_of_rank(layout, 1, 0, boundary, 1, {}) == Traffic{0, 0, 512});
    CHECK(step_traffic(layout, 1, boundary, 1, {}) == Traffic{512, 512, 0});
    std::size_t const acquired[] = {0, 1, 1, 0};
    CHECK(step_traffic(layout, 3, every, 1, acquired) == Traffic{512, 2 * (1024 + 512), 0});
}

TEST_CASE("Round-robin layouts move the same elements without the padding to equal shards") {
    auto const layout =
        make_layout<RoundRobinPartitioner, UnitBucketer>(test::gpt2_124m(), {64, 2, false});
    CHECK(step_traffic(layout, 1, boundary, 1, {})
          == Traffic{7'839'707'904, 7'839'707'904, 0}); // 63 * 124,439,808
}

TEST_CASE("Traffic and memory formulas reject a rank that the layout does not have") {
    auto const layout = gpt2(test::Head::tied, 4);
    CHECK_THROWS_WITH(step_traffic_of_rank(layout, 4, 1, boundary, 1, {}),
                      "zero: there is no rank 4; the layout has 4 ranks, numbered from 0.");
    CHECK_THROWS_AS(count_layout(layout, 4, stage_table[2], Storage::owned, 0), InvalidArgument);
    CHECK_NOTHROW(count_layout(layout, 3, stage_table[2], Storage::owned, 0));
}

} // namespace zero::test::traffic_test
