// Compares collectives over MPI with the call of MPI that a program would write instead. Prints a
// table. Start it with mpirun:
//
//     mpirun -n 4 mpi_collectives [largest bytes of the whole buffer]
//
// Each line measures both in turn until it has 9 medians of each. Bandwidths are those of
// nccl-tests: algbw = bytes of the whole buffer / time, busbw = algbw (W - 1) / W.

#include <zero/core/storage_types.hpp>
#include <zero/host/inline_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

using namespace zero;

using Operation = std::function<void()>;

/// Returns the median time in seconds of the slowest rank.
double median(std::vector<double>& times) {
    MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

struct Line {
    double own = 0.0;
    double twin = 0.0;
};

Line measure(std::size_t bytes, Operation const& own, Operation const& twin) {
    std::size_t const calls = std::max<std::size_t>(1, (std::size_t{1} << 20U) / bytes);
    constexpr std::size_t repetitions = 9;
    std::array<std::vector<double>, 2> times;
    for (std::size_t turn = 0; turn < 2 * (repetitions + 1); ++turn) {
        Operation const& operation = turn % 2 == 0 ? own : twin;
        MPI_Barrier(MPI_COMM_WORLD);
        double const start = MPI_Wtime();
        for (std::size_t call = 0; call < calls; ++call) {
            operation();
        }
        double const seconds = (MPI_Wtime() - start) / static_cast<double>(calls);
        if (turn >= 2) { // the first turn of each warms up
            times[turn % 2].push_back(seconds);
        }
    }
    Line line;
    line.own = median(times[0]);
    line.twin = median(times[1]);
    return line;
}

} // namespace

int main(int argc, char** argv) {
    mpi::Session const session;
    std::size_t const largest =
        argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{256} << 20U;
    auto const world = static_cast<std::size_t>(session.size());
    auto const rank = static_cast<std::size_t>(session.rank());
    mpi::Communicator in_rank_order(session.world());
    mpi::Options options;
    options.order = mpi::Order::library;
    mpi::Communicator by_library(session.world(), options);
    host::InlineQueue queue;
    if (rank == 0) {
        std::printf("%zu ranks; busbw of zero and of MPI in GB/s, and zero / MPI\n", world);
    }
    for (std::size_t bytes = 1024; bytes <= largest; bytes *= 8) {
        std::size_t const extent = bytes / sizeof(float) / world;
        std::vector<std::size_t> cuts;
        std::vector<std::size_t> half_cuts;
        for (std::size_t cut = 0; cut <= world; ++cut) {
            cuts.push_back(cut * extent);
            half_cuts.push_back(cut * extent * 2);
        }
        std::vector<float> whole(cuts.back(), 1.0F);
        std::vector<float> shard(extent, 1.0F);
        std::vector<bfloat16> half(half_cuts.back());
        std::vector<bfloat16> half_shard(extent * 2);
        auto const count = static_cast<int>(extent);
        Operation const gather_twin = [&] {
            MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, whole.data(), count, MPI_FLOAT,
                          MPI_COMM_WORLD);
        };
        Operation const scatter_twin = [&] {
            MPI_Reduce_scatter_block(whole.data(), shard.data(), count, MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_WORLD);
        };
        auto const print = [&](char const* what, Line const& line) {
            double const bus = static_cast<double>(bytes) * static_cast<double>(world - 1)
                               / static_cast<double>(world) / 1e9;
            if (rank == 0) {
                std::printf("%-30s %10zu bytes %8.3f %8.3f   %.2f\n", what, bytes, bus / line.own,
                            bus / line.twin, line.twin / line.own);
                std::fflush(stdout);
            }
        };
        print("all-gather", measure(
                                bytes,
                                [&] {
                                    in_rank_order.all_gather<float>(whole.data() + cuts[rank],
                                                                    whole.data(), cuts, &queue);
                                },
                                gather_twin));
        print(
            "reduce-scatter, library",
            measure(
                bytes,
                [&] { by_library.reduce_scatter<float>(whole.data(), shard.data(), cuts, &queue); },
                scatter_twin));
        print("reduce-scatter, rank order",
              measure(
                  bytes,
                  [&] {
                      in_rank_order.reduce_scatter<float>(whole.data(), shard.data(), cuts, &queue);
                  },
                  scatter_twin));
        print("reduce-scatter of bfloat16",
              measure(
                  bytes,
                  [&] {
                      in_rank_order.reduce_scatter<bfloat16>(half.data(), half_shard.data(),
                                                             half_cuts, &queue);
                  },
                  scatter_twin));
    }
    return 0;
}
