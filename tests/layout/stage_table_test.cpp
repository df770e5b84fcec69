#include "support/catch.hpp"

#include <zero/layout/stage_table.hpp>

namespace zero::test::stage_table_test {

namespace {

constexpr auto replicated = Placement::replicated;
constexpr auto sharded = Placement::sharded;

constexpr bool is_row(StageRow row, Placement parameters, Placement reduced, Placement accumulation,
                      Placement state) {
    return row.parameters == parameters && row.reduced_gradients == reduced
           && row.accumulation_buffer == accumulation && row.optimizer_state == state;
}

} // namespace

TEST_CASE("Each stage shards one state more than the stage before it") {
    constexpr auto every = ReductionSchedule::every_micro_step;
    STATIC_REQUIRE(is_row(stage_row(0, every), replicated, replicated, replicated, replicated));
    STATIC_REQUIRE(is_row(stage_row(1, every), replicated, sharded, replicated, sharded));
    STATIC_REQUIRE(is_row(stage_row(2, every), replicated, sharded, sharded, sharded));
    STATIC_REQUIRE(is_row(stage_row(3, every), sharded, sharded, sharded, sharded));
}

TEST_CASE("A boundary schedule keeps a full accumulation buffer in every stage and changes nothing "
          "else") {
    constexpr auto boundary = ReductionSchedule::boundary;
    STATIC_REQUIRE(is_row(stage_row(0, boundary), replicated, replicated, replicated, replicated));
    STATIC_REQUIRE(is_row(stage_row(1, boundary), replicated, sharded, replicated, sharded));
    STATIC_REQUIRE(is_row(stage_row(2, boundary), replicated, sharded, replicated, sharded));
    STATIC_REQUIRE(is_row(stage_row(3, boundary), sharded, sharded, replicated, sharded));
}

} // namespace zero::test::stage_table_test
