#pragma once

// The resident memory of a rank after a training step, measured in a process of its own.

#include <zero/comm/run_ranks.hpp>
#include <zero/layout/parameter_spec.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace zero::test {

/// @brief Bytes of one rank after one step.
struct ResidentMemory {
    std::size_t resident = 0; ///< resident bytes of the process, per rank
    std::size_t planned = 0;  ///< planned bytes of the engine of rank 0
};

/// @brief Returns the resident bytes of this process.
inline std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    std::size_t resident = 0;
    if (!(file >> pages >> resident)) {
        throw std::runtime_error("/proc/self/statm cannot be read");
    }
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// @brief Trains one step of two micro-steps on this process' threads with the default options and
/// bfloat16 parameters, then measures while the engines live. Every gradient is written.
template <int stage>
ResidentMemory train_and_measure(std::vector<ParameterSpec> const& model, int world) {
    ResidentMemory result;
    std::atomic<int> trained{0};
    std::atomic<bool> is_measured{false};
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        std::vector<Parameter<bfloat16>> parameters;
        for (ParameterSpec const& spec : model) {
            parameters.push_back(
                {.name = spec.name, .elements = spec.elements, .units = spec.units});
        }
        ZeroStage<stage, Parameters<bfloat16>> engine(communicator, parameters);
        std::size_t const units = engine.layout().units();
        engine.begin_step();
        // two micro-steps: one would not need the wire buffer of stages 0 and 1
        for (auto const micro_step : engine.micro_steps(2)) {
            for (std::size_t unit = 0; unit < units; ++unit) {
                (void)engine.acquire(unit);
            }
            for (std::size_t unit = units; unit-- > 0;) {
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    std::ranges::fill(gradients[parameter], bfloat16{});
                }
                engine.gradients_ready(unit);
            }
        }
        (void)engine.step(1e-4).report();
        if (communicator.rank() == 0) {
            result.planned = engine.memory_plan().engine_bytes();
        }
        if (++trained == world) {
            result.resident = resident_bytes() / static_cast<std::size_t>(world);
            is_measured = true;
            is_measured.notify_all();
        }
        is_measured.wait(false);
    });
    return result;
}

/// @brief Calls `train_and_measure` in a child process, so that nothing of an earlier measurement
/// is resident. No other thread may run. @throws std::runtime_error if the child fails
inline ResidentMemory resident_memory(int stage, std::vector<ParameterSpec> const& model,
                                      int world) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) {
        throw std::runtime_error("pipe failed");
    }
    pid_t const child = fork();
    if (child == 0) { // must not return to the caller, whatever happens
        try {
            ResidentMemory const result =
                with_stage(stage, [&]<int N>() { return train_and_measure<N>(model, world); });
            bool const is_written = write(pipe_ends[1], &result, sizeof result) == sizeof result;
            _exit(is_written ? 0 : 1);
        } catch (std::exception const& error) {
            std::fprintf(stderr, "%s\n", error.what());
            _exit(1);
        }
    }
    close(pipe_ends[1]);
    ResidentMemory result;
    bool const is_read = child > 0 && read(pipe_ends[0], &result, sizeof result) == sizeof result;
    close(pipe_ends[0]);
    int status = 1;
    if (child > 0) {
        waitpid(child, &status, 0);
    }
    if (!is_read || status != 0) {
        throw std::runtime_error("the process that trains in stage " + std::to_string(stage)
                                 + " failed");
    }
    return result;
}

} // namespace zero::test
