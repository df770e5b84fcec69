#include "fixture.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/zero.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// Processes with disks of their own save and load: the bits of threads that did not stop.

namespace zero::test::mpi_own_disks_ranks_test {

namespace {

using Values = std::vector<std::vector<float>>;
using Disks = std::array<std::size_t, 4>; ///< by rank

template <class C>
auto engine_of(C& communicator) {
    return ZeroStage<3, C>(communicator, registration<float>(toy_specs()));
}

template <class Engine>
void train(Engine& engine, int rank, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t step = begin; step < end; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(rank), step, 2);
    }
}

} // namespace

TEST_CASE("Processes resume from disks of their own, swapped or not, with the bits of threads") {
    constexpr int world = 4;
    if (mpi_session().size() < world) {
        skip_without_ranks(world);
        return;
    }
    auto const expected = on_ranks<Values>(world, [](LoopbackCommunicator& communicator) {
        auto engine = engine_of(communicator);
        train(engine, communicator.rank(), 0, 4);
        return full_parameters(engine);
    });
    TemporaryFolder const own;
    std::array<char, 256> root{}; // of rank 0, for all
    own.path().string().copy(root.data(), root.size() - 1);
    MPI_Bcast(root.data(), static_cast<int>(root.size()), MPI_CHAR, 0, mpi_session().world());
    auto const disk = [&](Disks const& disks, int rank) {
        return std::filesystem::path(root.data())
               / std::to_string(disks[static_cast<std::size_t>(rank)]);
    };
    mpi::Communicator everyone(mpi_session().world(), mpi_options());
    bool const is_here = everyone.rank() < world;
    auto group = everyone.split(is_here ? 0 : 1, everyone.rank());
    if (is_here) {
        run_rank(group, [&](mpi::Communicator& communicator) {
            auto engine = engine_of(communicator);
            train(engine, communicator.rank(), 0, 2);
            save_checkpoint(engine, disk({0, 1, 1, 2}, communicator.rank()), {.own_disks = true});
        });
    }
    for (Disks const& disks : {Disks{0, 1, 1, 2}, Disks{2, 0, 3, 1}, Disks{1, 2, 0, 0}}) {
        Values found;
        if (is_here) {
            auto again = everyone.split(0, everyone.rank());
            run_rank(again, [&](mpi::Communicator& communicator) {
                auto engine = engine_of(communicator);
                load_checkpoint(engine, disk(disks, communicator.rank()), {.own_disks = true});
                train(engine, communicator.rank(), 2, 4);
                found = full_parameters(engine);
            });
        } else {
            (void)everyone.split(1, everyone.rank());
        }
        CHECK((!is_here || found == expected[static_cast<std::size_t>(everyone.rank())]));
    }
    MPI_Barrier(mpi_session().world()); // before rank 0 removes its folder
}

} // namespace zero::test::mpi_own_disks_ranks_test
