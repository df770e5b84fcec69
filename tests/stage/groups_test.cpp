#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/zero_stage.hpp>

namespace zero::test::groups_test {
namespace {
using Hosts = Groups<LoopbackCommunicator, Hybrid>;
static_assert(GroupedCommunicator<Hosts>);
static_assert(!GroupedCommunicator<LoopbackCommunicator>);
}
TEST_CASE("smoke") {
    std::vector<std::vector<std::vector<float>>> r(4);
    run_ranks<Hosts>(4, test_time_out, {.shard = 2}, [&](Hosts& hosts) {
        ZeroStage<3, Hosts> engine(hosts, registration<float>(toy_specs()));
        for (std::uint64_t step = 0; step < 3; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(hosts.rank()), step, 2);
        }
        r[static_cast<std::size_t>(hosts.rank())] = full_parameters(engine);
    });
    CHECK(r[0] == r[1]);
    CHECK(r[0] == r[2]);
    CHECK(r[0] == r[3]);
}
}
