#include "support/catch.hpp"

#include <zero/layout/memory_plan.hpp>

namespace zero::test::memory_plan_text_test {

TEST_CASE("A memory plan is printed with one line per non-empty buffer") {
    MemoryPlan plan;
    plan[BufferKind::parameters] = {100, 28, true};
    plan[BufferKind::master_weights] = {400, 0, false};
    plan[BufferKind::gradients] = {64, 0, true};
    CHECK(to_string(plan)
          == std::string(name_of(BufferKind::parameters))
                 + ": 128 bytes (28 of padding; the caller's)\n" + name_of(BufferKind::gradients)
                 + ": 64 bytes (the caller's)\n" + name_of(BufferKind::master_weights)
                 + ": 400 bytes\nallocated by the engine: 400 bytes\n");
}

TEST_CASE("A memory plan is one JSON object with the rows that are not empty") {
    MemoryPlan plan;
    CHECK(to_json(plan)
          == R"({"rows": {}, "engine_bytes": 0, "model_state_bytes": 0, "tier_bytes": 0, )"
             R"("is_on_host": false})");
    plan[BufferKind::parameters] = {100, 28, true};
    plan[BufferKind::master_weights] = {400, 0, false};
    plan.tier_bytes = 4096;
    CHECK(to_json(plan)
          == R"({"rows": {"parameters": {"content_bytes": 100, "padding_bytes": 28, )"
             R"("is_callers": true}, "master weights": {"content_bytes": 400, )"
             R"("padding_bytes": 0, "is_callers": false}}, "engine_bytes": 400, )"
             R"("model_state_bytes": 500, "tier_bytes": 4096, "is_on_host": false})");
}

TEST_CASE("A sum of plans has the engine's memory where one of them is in memory of the caller") {
    auto const in = [](bool is_callers, std::size_t bytes) {
        MemoryPlan plan;
        plan[BufferKind::gradients] = {
            .content_bytes = bytes, .padding_bytes = 1, .is_callers = is_callers};
        return plan;
    };
    for (bool const is_first : {false, true}) {
        MemoryPlan sum = in(is_first, is_first ? 100 : 20);
        sum += in(!is_first, is_first ? 20 : 100);
        CHECK_FALSE(sum[BufferKind::gradients].is_callers);
        CHECK(sum.engine_bytes() == 21);
    }
    MemoryPlan callers = in(true, 100);
    callers += in(true, 20);
    callers += MemoryPlan();
    CHECK(callers[BufferKind::gradients].is_callers);
    CHECK(callers[BufferKind::gradients].bytes() == 122);
    CHECK(callers.engine_bytes() == 0);
}

} // namespace zero::test::memory_plan_text_test
