#include "stage/whole_tensor_model.hpp"
#include "support/catch.hpp"

#include <algorithm>

// Scratch memory is planned, allocated once, and large enough for the largest update of a rank.

namespace zero::test::whole_tensor_memory_test {

namespace {

/// The planned and allocated bytes of one rank: of scratch memory, and of all kinds (`all_...`).
/// `after_steps` and `left` count all kinds.
struct Scratch {
    std::size_t planned = 0, allocated = 0, after_steps = 0, left = 0;
    std::size_t all_planned = 0, all_allocated = 0;
};

template <class Stage>
std::vector<Scratch> scratch_of(int world, std::vector<ParameterSpec> const& specs) {
    return on_ranks<Scratch>(world, [&](LoopbackCommunicator& communicator) {
        HostMemoryResource memory;
        Scratch scratch;
        {
            typename Stage::Options options;
            options.memory = &memory;
            Stage engine(communicator, registration<typename Stage::ParameterType>(specs), options);
            scratch.planned = engine.memory_plan()[BufferKind::scratch].bytes();
            scratch.all_planned = engine.memory_plan().engine_bytes();
            scratch.allocated = memory.allocated_bytes(BufferKind::scratch);
            scratch.all_allocated = memory.allocated_bytes();
            for (std::uint64_t step = 0; step < 2; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step)
                    .report();
            }
            scratch.after_steps = memory.allocated_bytes();
        }
        scratch.left = memory.allocated_bytes();
        return scratch;
    });
}

template <class Stage>
std::vector<std::size_t> scratch_bytes(int world,
                                       std::vector<ParameterSpec> const& specs = whole_specs()) {
    std::vector<std::size_t> bytes;
    for (Scratch const& scratch : scratch_of<Stage>(world, specs)) {
        CHECK(scratch.planned == scratch.allocated);
        CHECK(scratch.all_planned == scratch.all_allocated);
        CHECK(scratch.after_steps == scratch.all_allocated);
        CHECK(scratch.left == 0);
        bytes.push_back(scratch.allocated);
    }
    return bytes;
}

} // namespace

TEST_CASE("Muon's scratch memory is planned and allocated for the largest need of a rank",
          "[stage][tensor]") {
    // Twice the matrix and twice the square of its shorter side, in floats: 1000 + 800 for 20 x 25,
    // 600 + 450 for 20 x 15, 258 + 18 for 3 x 43.
    using Bytes = std::vector<std::size_t>;
    CHECK(scratch_bytes<ZeroStage<0, Muon>>(2) == Bytes{7200, 7200});
    std::vector<ParameterSpec> const specs{{"a", 300, {0}, 0, true, 0, 20},
                                           {"b", 500, {0}, 0, true, 0, 20},
                                           {"c", 129, {0}, 0, true, 0, 3},
                                           {"d", 900, {0}, 0, true, 0, 0}};
    CHECK(scratch_bytes<ZeroStage<1, RoundRobinPartitioner, Muon>>(4, specs)
          == Bytes{0, 1104, 7200, 4200}); // dealt in turn, the last parameter first
    CHECK(scratch_bytes<ZeroStage<2, RoundRobinPartitioner, Muon>>(4, specs)
          == Bytes{0, 1104, 7200, 4200});
    CHECK(scratch_bytes<ZeroStage<3, RoundRobinPartitioner, Muon>>(4, specs)
          == Bytes{0, 1104, 7200, 4200});
    CHECK(scratch_bytes<ZeroStage<2, BalancedPartitioner, Parameters<bfloat16>, Muon>>(1, specs)
          == Bytes{7200});
}

TEST_CASE("Frozen matrices and parameters that are not matrices need no scratch memory",
          "[stage][tensor]") {
    CHECK(scratch_bytes<ZeroStage<2, RoundRobinPartitioner, Muon>>(
              1, {{"a", 300, {0}, 0, true, 0, 0},
                  {"b", 300, {0}, 0, false, 0, 20},
                  {"c", 2, {0}, 0, true, 0, 1}})
          == std::vector<std::size_t>{24}); // of the matrix of two elements
}

TEMPLATE_TEST_CASE("LAMB and per-element optimizers have no scratch memory", "[stage][tensor]",
                   Lamb, AdamW) {
    CHECK(scratch_bytes<ZeroStage<2, RoundRobinPartitioner, TestType>>(2)
          == std::vector<std::size_t>{0, 0});
}

} // namespace zero::test::whole_tensor_memory_test
