// Whole steps of ranks that are processes over MPI, beside those of ranks that are threads, on the
// shapes of GPT-2 124M (smaller sizes: the same tensors with fewer elements). Names are
// processes/<type>_W<ranks>_stage_<stage>/<who>/<elements>, where the twin is the threads. A
// repetition starts the processes anew: this program itself, by mpirun.

#include "stage/step_benchmarks.hpp"

#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace {

using namespace bench;

/// Prints the seconds of each of some steps, as one of the processes.
int run_process(int stage, std::int64_t elements, std::int64_t steps) {
    zero::mpi::Session const session;
    zero::mpi::Communicator communicator(session.world());
    auto const queue = HostBackend::default_compute_queue();
    auto const meet = [&] {
        std::int64_t met = 0;
        communicator.all_reduce_integers(&met, 1, IntegerReduction::sum, queue);
    };
    with_stage(stage, [&]<int N>() {
        with_steps<N, float>(communicator, model_of(elements), {.stage = N}, [&](auto const& step) {
            for (std::int64_t number = 0; number < steps; ++number) {
                meet();
                auto const start = std::chrono::steady_clock::now();
                step();
                meet();
                std::chrono::duration<double> const time = std::chrono::steady_clock::now() - start;
                if (communicator.rank() == 0) {
                    std::printf("%.9f\n", time.count());
                }
            }
        });
    });
    return 0;
}

void processes(benchmark::State& state, int ranks, int stage) {
    std::string const own = std::filesystem::read_symlink("/proc/self/exe");
    std::string const command = ZERO_MPI_LAUNCH " -n " + std::to_string(ranks) + " '" + own
                                + "' process " + std::to_string(stage) + ' '
                                + std::to_string(state.range(0)) + ' '
                                + std::to_string(state.max_iterations);
    std::FILE* const times = ::popen(command.c_str(), "r");
    for ([[maybe_unused]] auto _ : state) {
        double seconds = 0.0;
        if (times == nullptr || std::fscanf(times, "%lf", &seconds) != 1) {
            state.SkipWithError("the processes printed no time");
            break;
        }
        state.SetIterationTime(seconds);
    }
    if (times != nullptr) {
        ::pclose(times);
    }
}

void threads(benchmark::State& state, int ranks, int stage) {
    with_stage(stage, [&]<int N>() {
        run_ranks(ranks, [&](LoopbackCommunicator& communicator) {
            with_steps<N, float>(communicator, model_of(state.range(0)), {.stage = N},
                                 [&](auto const& step) { measure(state, communicator, step); });
        });
    });
}

void add(std::string const& name, void (*function)(benchmark::State&, int, int), int ranks,
         int stage) {
    for (std::int64_t const size :
         {static_cast<std::int64_t>(gpt2_elements), std::int64_t{1} << 20}) {
        benchmark::RegisterBenchmark(name.c_str(), function, ranks, stage)
            ->Arg(size)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
    }
}

} // namespace

int main(int count, char** arguments) {
    if (count > 4 && std::string_view(arguments[1]) == "process") {
        return run_process(std::atoi(arguments[2]), std::atoll(arguments[3]),
                           std::atoll(arguments[4]));
    }
    keep_memory();
    for (int const ranks : {2, 4}) {
        for (int const stage : {1, 2, 3}) {
            std::string const name =
                "processes/float_W" + std::to_string(ranks) + "_stage_" + std::to_string(stage);
            add(name + "/zero", processes, ranks, stage);
            add(name + "/twin", threads, ranks, stage);
        }
    }
    benchmark::Initialize(&count, arguments);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
