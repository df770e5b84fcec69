#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// States of every replica in files, and states that leave memory between two steps.

namespace zero::test::groups_offload_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Hybrid>;
using All = Offload<
    To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights, BufferKind::parameters>>;
using InFiles = ZeroStage<3, Parameters<bfloat16>, All, Hosts>;
using InMemory = ZeroStage<3, Parameters<bfloat16>, Hosts>;

constexpr std::size_t world = 4;

using Values = std::vector<std::vector<std::vector<float>>>; ///< by rank

template <class Stage>
Values train(std::string const& path, bool parks = false) {
    Values values(world);
    run_ranks<Hosts>(static_cast<int>(world), test_time_out, {.shard = 2}, [&](Hosts& hosts) {
        auto const rank = static_cast<std::size_t>(hosts.rank());
        typename Stage::Options options;
        if constexpr (requires { options.offload.path; }) {
            options.offload.path = path;
            options.offload.chunk_bytes = 4096;
            options.offload.allow_page_cache = true;
        }
        Stage engine(hosts, registration<bfloat16>(toy_specs()), options);
        for (std::uint64_t step = 0; step < 4; ++step) {
            (void)run_step(engine, rank, step, 2, 0.01, 8).report();
            if (parks) {
                offload_states(engine, {.path = path, .allow_page_cache = true});
                reload_states(engine);
            }
        }
        values[rank] = full_parameters(engine);
    });
    return values;
}

} // namespace

TEST_CASE("Replicas whose states lie in files, or leave memory between steps, end with the bits of "
          "those in memory") {
    TemporaryFolder const folder;
    Values const expected = train<InMemory>("");
    for (auto const& of_rank : expected) {
        CHECK((of_rank == expected[0]));
    }
    CHECK((train<InFiles>(folder.path().string()) == expected));
    CHECK((train<InMemory>(folder.path().string(), true) == expected));
}

} // namespace zero::test::groups_offload_test
