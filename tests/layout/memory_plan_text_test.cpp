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

} // namespace zero::test::memory_plan_text_test
