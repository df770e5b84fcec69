#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Checkpoints of engines whose gathers have a communicator of their own.

namespace zero::test::own_gathers_checkpoint_test {

namespace {

using Values = std::vector<std::vector<float>>;

/// Trains, saves, trains on, loads while gathers may be under way, and trains again.
std::vector<Values> train(LoopbackCommunicator& all, bool is_apart, std::string const& folder) {
    auto const rank = static_cast<std::uint64_t>(all.rank());
    host::DelayingQueue queue(rank);
    ZeroStage<3> engine(all, registration<float>(toy_specs()),
                        {.gather = {.own_communicator = is_apart}, .communication_queue = &queue});
    std::vector<Values> seen;
    auto const train = [&](std::uint64_t first) {
        for (std::uint64_t step = first; step < first + 2; ++step) {
            (void)run_step(engine, rank, step, 2);
        }
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            (void)engine.acquire(unit);
        }
    };
    train(0);
    save_checkpoint(engine, folder);
    train(2);
    seen.push_back(full_parameters(engine));
    train(4);
    load_checkpoint(engine, folder);
    seen.push_back(full_parameters(engine));
    train(2);
    seen.push_back(full_parameters(engine));
    return seen;
}

} // namespace

TEST_CASE("A checkpoint is saved and loaded beside gathers of their own, with the same bits") {
    auto const values = [](bool is_apart) {
        TemporaryFolder const folder;
        return on_ranks<std::vector<Values>>(3, [&](LoopbackCommunicator& all) {
            return train(all, is_apart, folder.path().string());
        });
    };
    auto const expected = values(false);
    CHECK((expected[0][2] == expected[0][0]));
    CHECK((expected[0][1] != expected[0][0]));
    for (int run = 0; run < 3; ++run) {
        CHECK((values(true) == expected));
    }
}

} // namespace zero::test::own_gathers_checkpoint_test
