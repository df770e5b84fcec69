#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/secondary.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <vector>

// Secondary copies: a run with them has the bits of the flat run.

namespace zero::test::secondary_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Secondary>;
static_assert(SecondaryCommunicator<Hosts> && !GroupedCommunicator<Hosts>);
static_assert(!SecondaryCommunicator<LoopbackCommunicator>);

using Values = std::vector<std::vector<float>>;

template <class Stage>
Values train(auto& communicator) {
    Stage engine(communicator, registration<float>(toy_specs()));
    for (std::uint64_t step = 0; step < 4; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2).report();
    }
    return full_parameters(engine);
}

} // namespace

TEST_CASE("A run with secondary copies has the bits of the flat run") {
    for (int const world : {4, 6, 8}) {
        auto const flat = on_ranks<Values>(
            world, [](LoopbackCommunicator& all) { return train<ZeroStage<3>>(all); });
        for (std::size_t ranks = 2; ranks < static_cast<std::size_t>(world); ++ranks) {
            if (static_cast<std::size_t>(world) % ranks == 0) {
                std::vector<Values> seen(static_cast<std::size_t>(world));
                run_ranks<Hosts>(world, test_time_out, {.secondary = ranks}, [&](Hosts& hosts) {
                    seen[static_cast<std::size_t>(hosts.rank())] =
                        train<ZeroStage<3, Hosts>>(hosts);
                });
                CHECK(seen == flat);
            }
        }
    }
}

} // namespace zero::test::secondary_test
