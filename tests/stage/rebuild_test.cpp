#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/zero_stage.hpp>
using namespace zero;
using namespace zero::test;
TEST_CASE("smoke") {
    auto const a = on_ranks<std::vector<std::vector<float>>>(2, [](LoopbackCommunicator& c) {
        ZeroStage<2, UnitBucketer> engine(c, registration<float>(toy_specs()), {.rebuild_buckets = true});
        for (std::uint64_t step = 0; step < 3; ++step) (void)run_step(engine, static_cast<std::uint64_t>(c.rank()), step);
        return full_parameters(engine);
    });
    CHECK(a[0] == a[1]);
}
