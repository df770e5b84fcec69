#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// An engine on two levels of loopback groups.

namespace zero::test::hierarchical_test {

namespace {

using Levels = Hierarchical<LoopbackCommunicator, LoopbackCommunicator>;
using Values = std::vector<std::vector<float>>;

struct Result {
    Values parameters;
    std::size_t planned = 0;   ///< scratch memory of communicators
    std::size_t allocated = 0; ///< the same
};

template <class Stage>
Values train(auto& communicator, Result& result) {
    Stage engine(communicator, registration<float>(toy_specs()),
                 {.reduction = {.schedule = ReductionSchedule::boundary}});
    for (std::uint64_t step = 0; step < 4; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2, 0.01, 24);
    }
    result.planned = engine.memory_plan()[BufferKind::communicator].bytes();
    return full_parameters(engine);
}

template <int N, class Partitioner>
Result in_levels(int inner_ranks, int outer_ranks) {
    return on_ranks<Result>(inner_ranks * outer_ranks, [&](LoopbackCommunicator& parent) {
        HostMemoryResource own;
        LoopbackCommunicator intra = parent.split(parent.rank() % outer_ranks, parent.rank());
        LoopbackCommunicator inter = parent.split(parent.rank() / outer_ranks, parent.rank());
        Levels communicator(intra, inter, {.scratch_bytes = 512, .memory = &own});
        Result result;
        result.parameters = train<ZeroStage<N, Partitioner, Levels>>(communicator, result);
        result.allocated = own.allocated_bytes(BufferKind::communicator) + intra.scratch_bytes(0)
                           + inter.scratch_bytes(0);
        return result;
    })[0];
}

Values flat(int world) {
    return on_ranks<Values>(world, [](LoopbackCommunicator& communicator) {
        Result result;
        return train<ZeroStage<2>>(communicator, result);
    })[0];
}

} // namespace

TEST_CASE(
    "Every stage and partitioner ends with the same bits on the same two levels, and the plan "
    "holds their scratch memory") {
    for (auto const& [inner, outer] :
         {std::pair(2, 2), std::pair(4, 1), std::pair(1, 4), std::pair(2, 3)}) {
        Result const first = in_levels<0, ContiguousPartitioner>(inner, outer);
        CHECK(in_levels<1, ContiguousPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<2, ContiguousPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<3, ContiguousPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<2, RoundRobinPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(in_levels<3, RoundRobinPartitioner>(inner, outer).parameters == first.parameters);
        CHECK(first.planned == first.allocated);
        CHECK(first.planned == (inner == 1 || outer == 1 ? 0U : 512U) + 2 * 512U);
        bool const is_flat = inner == 1 || outer == 1;
        CHECK((first.parameters == flat(inner * outer)) == is_flat);
    }
}

} // namespace zero::test::hierarchical_test
