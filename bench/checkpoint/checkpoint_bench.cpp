// Compares saving and loading of an AdamW state of GPT-2's shapes (bfloat16 parameters, float
// master weights and moments, two ranks) with a twin: two threads that write, or read, files of the
// same size from front to back, 4 MiB a call, with the same flags and the same fsync. The byte
// count is that of the files; a rank of stage 2 also reads the other rank's parameters. Files are
// in $ZERO_BENCH_FOLDER, or in the system's folder for temporary files. Reads come from the page
// cache, because the files have just been written.

#include "../stage/backward_pass.hpp"
#include "support/shapes.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/stage/zero_stage.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace zero;

constexpr int world = 2;
using Stage = ZeroStage<2, Parameters<bfloat16>>;
using Clock = std::chrono::steady_clock;

std::filesystem::path folder() {
    char const* const given = std::getenv("ZERO_BENCH_FOLDER");
    auto const base =
        given != nullptr ? std::filesystem::path(given) : std::filesystem::temp_directory_path();
    return base / ("zero-checkpoint-bench-" + std::to_string(::getpid()));
}

std::vector<Parameter<bfloat16>> model() {
    std::vector<Parameter<bfloat16>> parameters;
    for (auto const& spec : test::gpt2_124m()) {
        parameters.push_back({.name = spec.name, .elements = spec.elements, .units = spec.units});
    }
    return parameters;
}

std::uint64_t bytes_in_folder() {
    std::uint64_t bytes = 0;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(folder())) {
        bytes += entry.is_regular_file() ? entry.file_size() : 0;
    }
    return bytes;
}

/// Removes the files from the page cache, so that the next read comes from the disk.
void forget_files() {
    for (auto const& entry : std::filesystem::recursive_directory_iterator(folder())) {
        if (entry.is_regular_file()) {
            int const descriptor = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
            ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
            ::close(descriptor);
        }
    }
}

/// State of the checkpoint files when an iteration begins.
enum class Files { removed, cached, on_disk };

/// Runs `act(engine)` on every rank, once for each iteration; `prepare` is not timed.
void measure(benchmark::State& state, std::function<void(Stage&, int rank)> const& prepare,
             std::function<void(Stage&, int rank)> const& act, Files files) {
    std::barrier<> meeting(world);
    bool is_going = true;
    std::uint64_t bytes = 0;
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model());
        prepare(engine, communicator.rank());
        while (true) {
            if (communicator.rank() == 0) {
                is_going = state.KeepRunning();
                if (is_going && files == Files::on_disk) {
                    forget_files();
                }
            }
            meeting.arrive_and_wait();
            if (!is_going) {
                break;
            }
            auto const start = Clock::now();
            act(engine, communicator.rank());
            meeting.arrive_and_wait();
            if (communicator.rank() == 0) {
                state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
                bytes = bytes_in_folder();
                if (files == Files::removed) { // the files that are written next must not exist
                    std::filesystem::remove_all(folder());
                    std::filesystem::create_directories(folder());
                }
            }
            meeting.arrive_and_wait();
        }
    });
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
    std::filesystem::remove_all(folder());
}

void save(benchmark::State& state) {
    measure(
        state, [](Stage&, int) {},
        [](Stage& engine, int) { save_checkpoint(engine, folder(), {.name = "checkpoint"}); },
        Files::removed);
}

template <Files files, bool verify_first = true>
void load(benchmark::State& state) {
    measure(
        state,
        [](Stage& engine, int) { save_checkpoint(engine, folder(), {.name = "checkpoint"}); },
        [](Stage& engine, int) {
            load_checkpoint(engine, folder(), {.verify_first = verify_first});
        },
        files);
}

void require(bool holds) {
    if (!holds) {
        std::perror("checkpoint_bench");
        std::exit(1);
    }
}

constexpr std::size_t call_bytes = std::size_t{1} << 22U;

/// Returns the bytes that a rank loads, which include all parameters.
std::size_t bytes_to_load(Stage const& engine) {
    return engine.layout().padded_elements() / world * (2 * world + 4 + 4 + 4);
}

std::filesystem::path twin_file(int rank) {
    return folder() / std::to_string(rank);
}

void write_plain(std::filesystem::path const& file,
                 std::vector<std::span<std::byte const>> const& parts) {
    int const descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    require(descriptor >= 0);
    for (auto const& data : parts) {
        for (std::size_t begin = 0; begin < data.size(); begin += call_bytes) {
            std::size_t const count = std::min(call_bytes, data.size() - begin);
            require(::write(descriptor, data.data() + begin, count) == static_cast<ssize_t>(count));
        }
    }
    require(::fsync(descriptor) == 0);
    require(::close(descriptor) == 0);
}

/// Returns all memory that a rank owns.
std::vector<std::span<std::byte const>> owned_memory(Stage& engine) {
    std::vector<std::span<std::byte const>> parts;
    engine.for_each_owned_slice([&](auto const& slice) {
        parts.push_back(std::as_bytes(slice.values));
        parts.push_back(std::as_bytes(slice.master));
        for (auto const& state : slice.states) {
            parts.push_back(std::as_bytes(state));
        }
    });
    return parts;
}

void read_plain(std::filesystem::path const& file, std::vector<std::byte>& data) {
    int const descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    require(descriptor >= 0);
    for (std::size_t begin = 0; begin < data.size(); begin += call_bytes) {
        std::size_t const count = std::min(call_bytes, data.size() - begin);
        require(::pread(descriptor, data.data() + begin, count, static_cast<off_t>(begin))
                == static_cast<ssize_t>(count));
    }
    require(::close(descriptor) == 0);
}

/// The memory into which a rank of the twin reads.
thread_local std::vector<std::byte> state_memory;

void save_twin(benchmark::State& state) {
    measure(
        state, [](Stage&, int) { std::filesystem::create_directories(folder()); },
        [](Stage& engine, int rank) { write_plain(twin_file(rank), owned_memory(engine)); },
        Files::removed);
}

template <Files files>
void load_twin(benchmark::State& state) {
    measure(
        state,
        [](Stage& engine, int rank) {
            state_memory.assign(bytes_to_load(engine), std::byte{1});
            std::filesystem::create_directories(folder());
            write_plain(twin_file(rank), {{state_memory.data(), state_memory.size()}});
        },
        [](Stage&, int rank) { read_plain(twin_file(rank), state_memory); }, files);
}

/// Arithmetic in registers, as a stand-in for the backward pass of a unit.
void compute(std::int64_t operations) {
    double value = 1.0;
    for (std::int64_t i = 0; i < operations; ++i) {
        value = value * 0.5 + 1.0;
        benchmark::DoNotOptimize(value);
    }
}

/// Times steps without a save, or each right after the start of a background save. Counts the saves
/// that ended before their step did, because such a step did not overlap with a save all the time.
template <bool is_saving, std::int64_t operations>
void step(benchmark::State& state) {
    std::filesystem::create_directories(folder());
    std::barrier<> meeting(world);
    bool is_going = true;
    int ended_first = 0;
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model());
        CheckpointSaver saver(engine, folder());
        auto const train = [&](bool are_written) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            bench::backward_and_step(
                engine, [](std::size_t) { compute(operations); }, are_written);
        };
        train(true);
        if (is_saving) { // the first allocates the copy
            saver.start({.name = "checkpoint"});
            saver.wait();
        }
        while (true) {
            if (communicator.rank() == 0) {
                is_going = state.KeepRunning();
            }
            meeting.arrive_and_wait();
            if (!is_going) {
                break;
            }
            if (is_saving) {
                saver.start({.name = "checkpoint"});
            }
            meeting.arrive_and_wait();
            auto const start = Clock::now();
            train(false);
            meeting.arrive_and_wait();
            if (communicator.rank() == 0) {
                state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
            }
            if (is_saving && saver.poll()) {
                ended_first += communicator.rank() == 0 ? 1 : 0;
            }
            saver.wait();
            meeting.arrive_and_wait();
        }
    });
    state.counters["ended_first"] = ended_first;
    std::filesystem::remove_all(folder());
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->Arg(124'439'808)->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(save)->Name("save/disk/zero")->Apply(sizes);
BENCHMARK(save_twin)->Name("save/disk/twin")->Apply(sizes);
BENCHMARK(load<Files::cached>)->Name("load/page_cache/zero")->Apply(sizes);
BENCHMARK(load<Files::cached, false>)->Name("load/page_cache/zero_once")->Apply(sizes);
BENCHMARK(load_twin<Files::cached>)->Name("load/page_cache/twin")->Apply(sizes);
BENCHMARK(step<false, 0>)->Name("step_while_saving/bare/twin")->Apply(sizes);
BENCHMARK(step<true, 0>)->Name("step_while_saving/bare/zero")->Apply(sizes);
// 14 units
BENCHMARK(step<false, 30'000'000>)->Name("step_while_saving/with_compute/twin")->Apply(sizes);
BENCHMARK(step<true, 30'000'000>)->Name("step_while_saving/with_compute/zero")->Apply(sizes);
BENCHMARK(load<Files::on_disk>)->Name("load/disk/zero")->Apply(sizes);
BENCHMARK(load<Files::on_disk, false>)->Name("load/disk/zero_once")->Apply(sizes);
BENCHMARK(load_twin<Files::on_disk>)->Name("load/disk/twin")->Apply(sizes);

} // namespace
