#include "fixture.hpp"
#include "support/ranks.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/zero.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Two levels over MPI: threads inside a process and MPI between processes, and MPI on both levels.
// Both have the bits of two levels of loopback groups.

namespace zero::test::mpi_hierarchical_ranks_test {

namespace {

using Threads = Hierarchical<LoopbackCommunicator, mpi::Communicator>;
using Processes = Hierarchical<mpi::Communicator, mpi::Communicator>;
using Reference = Hierarchical<LoopbackCommunicator, LoopbackCommunicator>;
static_assert(Communicator<Threads> && Communicator<Processes>);

constexpr LoopbackOptions group_options{.time_out = std::chrono::seconds(60)};

/// The processes of a test: the first `processes` of all.
struct Part {
    explicit Part(int processes)
        : everyone(mpi_session().world(), mpi_options()), is_here(everyone.rank() < processes),
          group(everyone.split(is_here ? 0 : 1, everyone.rank())) {}

    mpi::Communicator everyone;
    bool is_here;
    mpi::Communicator group;
};

/// Runs `body(communicator)` as G threads in each process of `group`, with ranks inner * R + outer.
/// Each thread has its own communicator between the processes.
template <class Body>
void run_threads_in_processes(int threads, mpi::Communicator& group, Body const& body) {
    auto intra = LoopbackCommunicator::make_group(threads, group_options);
    std::deque<mpi::Communicator> inter;
    for (int thread = 0; thread < threads; ++thread) {
        inter.push_back(group.split(0, group.rank()));
    }
    zero::detail::run_threads(
        intra.size(),
        [&](std::size_t thread) {
            Threads communicator(intra[thread], inter[thread]);
            run_rank(communicator, body);
        },
        [](std::size_t, std::string_view, bool) {});
}

/// Runs `body(communicator)` as one process of G * R. Each R consecutive processes share an inner
/// rank.
template <class Body>
void run_processes(int outer_ranks, mpi::Communicator& group, Body const& body) {
    auto intra = group.split(group.rank() % outer_ranks, group.rank());
    auto inter = group.split(group.rank() / outer_ranks, group.rank());
    Processes communicator(intra, inter);
    run_rank(communicator, body);
}

/// Runs `body(communicator)` as two levels of threads of this process.
template <class Body>
void run_reference(int inner_ranks, int outer_ranks, Body const& body) {
    run_ranks(inner_ranks * outer_ranks, group_options, [&](LoopbackCommunicator& all) {
        auto intra = all.split(all.rank() % outer_ranks, all.rank());
        auto inter = all.split(all.rank() / outer_ranks, all.rank());
        Reference communicator(intra, inter);
        body(communicator);
    });
}

/// Two threads in each of up to four processes.
struct TwoThreads {
    inline static std::atomic<int> arrived{0};
    inline static MPI_Comm meeting = MPI_COMM_NULL; ///< the processes of the current run

    /// Waits for all ranks of the current run, once: the last thread of a process meets the others.
    static void meet(int /*world*/) {
        if (++arrived == 2) {
            MPI_Barrier(meeting);
            arrived = 3;
            arrived.notify_all();
        }
        for (int seen = arrived; seen < 3; seen = arrived) {
            arrived.wait(seen);
        }
    }

    template <class Body>
    static bool run(int world, Body const& body) {
        if (world % 2 != 0 || world / 2 > mpi_session().size()) {
            return false;
        }
        arrived = 0;
        Part part(world / 2);
        MPI_Comm_split(mpi_session().world(), part.is_here ? 0 : 1, part.everyone.rank(), &meeting);
        if (part.is_here) {
            run_threads_in_processes(2, part.group, body);
        }
        MPI_Comm_free(&meeting);
        return part.is_here;
    }
};

/// (G, R) = (2, 2) and (2, 3) as processes.
struct TwoProcesses {
    inline static MPI_Comm meeting = MPI_COMM_NULL; ///< the ranks of the current run

    static void meet(int /*world*/) { MPI_Barrier(meeting); }

    template <class Body>
    static bool run(int world, Body const& body) {
        if ((world != 4 && world != 6) || world > mpi_session().size()) {
            return false;
        }
        Part part(world);
        MPI_Comm_split(mpi_session().world(), part.is_here ? 0 : 1, part.everyone.rank(), &meeting);
        if (part.is_here) {
            run_processes(world / 2, part.group, body);
        }
        MPI_Comm_free(&meeting);
        return part.is_here;
    }
};

/// Returns the parameters of one rank after ten steps. They depend on the order of sums.
template <class Reduction = GradientReduction<>, class C>
std::vector<float> trained(C& communicator) {
    constexpr std::size_t elements = 997;
    std::vector<float> initial(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        initial[i] = value_of<float>(0, i, 1);
    }
    using Stage = ZeroStage<2, Adam, Reduction, C>;
    constexpr bool in_tree = !std::is_same_v<Reduction, GradientReduction<>>;
    typename Stage::Options options;
    options.bucketer.bucket_bytes = 1024;
    options.reduction.micro_batches = in_tree ? 8 : 0;
    Stage engine(
        communicator,
        {{.name = "weights", .initial = initial.data(), .elements = elements, .units = {0}}},
        options);
    for (std::size_t step = 0; step < 10; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(in_tree ? 0 : 1)) {
            auto const gradients = engine.gradients(0);
            int const number =
                in_tree ? static_cast<int>(engine.micro_batch(micro_step)) : communicator.rank();
            for (std::size_t i = 0; i < elements; ++i) {
                gradients[0][i] += value_of<float>(number, i, step);
            }
            engine.gradients_ready(0);
        }
        engine.step(0.01);
    }
    auto const weights = engine.acquire(0);
    return {&weights[0][0], &weights[0][0] + elements};
}

} // namespace

TEMPLATE_TEST_CASE("Two levels over MPI sum in rank order on each level", "", TwoThreads,
                   TwoProcesses) {
    CHECK(mpi_session().size() > 0); // a case that needs more processes is not run
    check_sums_of<TestType, float>();
    check_sums_of<TestType, bfloat16>();
}

TEMPLATE_TEST_CASE("Two levels over MPI gather, broadcast, reduce integers and abort", "",
                   TwoThreads, TwoProcesses) {
    CHECK(mpi_session().size() > 0);
    check_gathers_of<TestType, float, unsigned char>();
    check_broadcasts_of<TestType, float16, std::int64_t>();
    check_integer_reductions<TestType>();
    check_number_sums<TestType>();
    check_abort<TestType>();
}

TEST_CASE("A training of two levels over MPI ends with the bits of two levels of threads, and in a "
          "tree with those of one rank") {
    if (mpi_session().size() < 4) {
        skip_without_ranks(4);
        return;
    }
    std::vector<float> one; // the bits of a tree, on any ranks
    run_ranks(1, group_options, [&](LoopbackCommunicator& communicator) {
        one = trained<TreeReduction<>>(communicator);
    });
    std::vector<float> expected;
    run_reference(2, 2, [&](Reference& communicator) {
        auto const weights = trained(communicator);
        if (communicator.rank() == 0) {
            expected = weights;
        }
    });
    std::vector<float> flat;
    run_ranks(4, group_options, [&](LoopbackCommunicator& communicator) {
        auto const weights = trained(communicator);
        if (communicator.rank() == 0) {
            flat = weights;
        }
    });
    CHECK_FALSE(equal_bits(flat, expected)); // so the comparison can fail
    Report report;
    {
        Part part(2);
        if (part.is_here) {
            run_threads_in_processes(2, part.group, [&](Threads& communicator) {
                report.expect(communicator.size() == 4, "four threads");
                report.expect(equal_bits(trained(communicator), expected), "threads in processes");
                report.expect(equal_bits(trained<TreeReduction<>>(communicator), one),
                              "a tree over threads in processes");
            });
        }
    }
    {
        Part part(4);
        if (part.is_here) {
            run_processes(2, part.group, [&](Processes& communicator) {
                report.expect(communicator.size() == 4, "four processes");
                report.expect(equal_bits(trained(communicator), expected), "processes");
                report.expect(equal_bits(trained<TreeReduction<>>(communicator), one),
                              "a tree over processes");
            });
        }
    }
    if (mpi_session().rank() < 4) { // the others took no part
        report.check();
    }
}

} // namespace zero::test::mpi_hierarchical_ranks_test
