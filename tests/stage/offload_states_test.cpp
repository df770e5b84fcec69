// The states of an engine leave memory between two steps and come back, and no bit of a result
// depends on it.

#include "support/catch.hpp"
#include "support/stages.hpp"

#include "offload_model.hpp"
#include "state_model.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace zero::test::offload_states_test {

namespace {

using namespace state_model;

constexpr BufferKind all_kinds[] = {BufferKind::parameters,      BufferKind::gradients,
                                    BufferKind::master_weights,  BufferKind::optimizer_state,
                                    BufferKind::gradient_leases, BufferKind::parameter_leases};

/// Returns layers of some pages each.
std::vector<ParameterSpec> layers() {
    return {{"a", 30'000, {0}}, {"b", 50'001, {1}}, {"c", 20'000, {1}}};
}

std::size_t resident(HostMemoryResource const& memory) {
    std::size_t bytes = 0;
    for (BufferKind const kind : all_kinds) {
        bytes += memory.resident_bytes(kind);
    }
    return bytes;
}

} // namespace

TEST_CASE(
    "Rollout and training alternate: in a rollout the memory of the engine is given back, and "
    "training goes on with the same bits") {
    using Stage = ZeroStage<2, Parameters<bfloat16>>;
    using Histories = std::vector<std::vector<std::vector<float>>>;
    auto const train = [&](bool parks, bool blocking) {
        TemporaryFolder const folder;
        return on_ranks<Histories>(2, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            HostMemoryResource memory;
            Histories seen;
            Stage engine(communicator, registration<bfloat16>(layers()), {.memory = &memory});
            for (std::uint64_t turn = 0; turn < 3; ++turn) {
                seen.push_back(full_parameters(engine)); // for the model that generates
                std::size_t const before = resident(memory);
                if (parks) {
                    offload_states(
                        engine,
                        {.path = folder.path(), .blocking = blocking, .allow_page_cache = true});
                    if (blocking) {
                        REQUIRE(resident(memory) < before / 20);
                        REQUIRE(memory.resident_bytes(BufferKind::staging) == 0);
                    }
                    // the rollout is here
                    reload_states(engine, {.blocking = blocking});
                }
                REQUIRE((!blocking || resident(memory) == before));
                (void)run_step(engine, rank, turn);
            }
            seen.push_back(full_parameters(engine));
            return seen;
        });
    };
    auto const expected = train(false, true);
    CHECK(train(true, true) == expected);
    CHECK(train(true, false) == expected);
}

} // namespace zero::test::offload_states_test
