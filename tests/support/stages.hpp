#pragma once

#include "catch.hpp"

#include <zero/stage/with_stage.hpp>

namespace zero::test {

/// Calls `test.operator()<N>()` for stages 0 to 3, and names the stage in messages. Call it on the
/// main thread.
template <class Test>
void in_every_stage(Test const& test) {
    for (int const stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        with_stage(stage, [&]<int N>() { test.template operator()<N>(); });
    }
}

} // namespace zero::test
