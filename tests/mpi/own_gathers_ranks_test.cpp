#include "fixture.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// Gathers on a communicator of their own between processes: the bits of threads without it, and the
// cause of a rank that fails.

namespace zero::test::mpi_own_gathers_ranks_test {

namespace {

using Values = std::vector<std::vector<float>>;

template <class C>
Values train(C& everyone, bool is_apart) {
    ZeroStage<3, Parameters<bfloat16>, C> engine(
        everyone, registration<bfloat16>(toy_specs()),
        {.gather = {.prefetch_elements = 600, .own_communicator = is_apart}});
    auto const rank = static_cast<std::uint64_t>(everyone.rank());
    for (std::uint64_t step = 0; step < 8; ++step) {
        (void)run_step(engine, rank, step, 2);
    }
    return full_parameters(engine);
}

/// Runs `body(communicator)` on the first `world` processes. @return whether this one is among them
template <class Body>
bool on_processes(int world, Body const& body) {
    mpi::Communicator everyone(mpi_session().world(), mpi_options());
    bool const is_here = everyone.rank() < world;
    auto group = everyone.split(is_here ? 0 : 1, everyone.rank());
    if (is_here) {
        run_rank(group, body);
    }
    return is_here;
}

} // namespace

TEST_CASE("Gathers of their own between processes give the bits of threads that have none") {
    for (int const world : {2, 4}) {
        if (mpi_session().size() < world) {
            skip_without_ranks(world);
            continue;
        }
        auto const expected = on_ranks<Values>(
            world, [](LoopbackCommunicator& communicator) { return train(communicator, false); });
        Values found;
        std::size_t rank = 0;
        bool const is_here = on_processes(world, [&](mpi::Communicator& communicator) {
            rank = static_cast<std::size_t>(communicator.rank());
            found = train(communicator, true);
        });
        CHECK((!is_here || found == expected[rank]));
    }
}

TEST_CASE("Gathers of their own inside replicas of processes give the bits of threads") {
    constexpr int world = 4;
    if (mpi_session().size() < world) {
        skip_without_ranks(world);
        return;
    }
    using Threads = Groups<LoopbackCommunicator, Hybrid>;
    std::vector<Values> expected(world);
    run_ranks<Threads>(world, test_time_out, {.shard = 2}, [&](Threads& groups) {
        expected[static_cast<std::size_t>(groups.rank())] = train(groups, false);
    });
    Values found;
    std::size_t rank = 0;
    bool const is_here = on_processes(world, [&](mpi::Communicator& communicator) {
        Groups<mpi::Communicator, Hybrid> groups(communicator, {.shard = 2});
        rank = static_cast<std::size_t>(groups.rank());
        found = train(groups, true);
    });
    CHECK((!is_here || found == expected[rank]));
}

TEST_CASE("A process that fails releases those that wait in a gather of their own") {
    constexpr int world = 2;
    if (mpi_session().size() < world) {
        skip_without_ranks(world);
        return;
    }
    Outcome seen;
    int rank = 0;
    bool const is_here = on_processes(world, [&](mpi::Communicator& communicator) {
        rank = communicator.rank();
        seen = outcome_of([&] {
            ZeroStage<3, mpi::Communicator> engine(communicator, registration<float>(toy_specs()),
                                                   {.gather = {.own_communicator = true}});
            (void)run_step(engine, static_cast<std::uint64_t>(rank), 0).report();
            engine.begin_step();
            engine.begin_micro_step();
            if (rank == 1) {
                throw std::runtime_error("no more data");
            }
            run_micro_step(engine, 0, 1, 0);
            engine.end_micro_step();
            (void)engine.step(0.01).report();
        });
    });
    CHECK(seen.type == (!is_here ? "returned" : rank == 1 ? "other" : "Aborted"));
}

} // namespace zero::test::mpi_own_gathers_ranks_test
