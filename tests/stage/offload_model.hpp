#pragma once

// The toy model with states in files of which a test sees every request.

#include "support/temporary_folder.hpp"
#include "support/trained.hpp"

#include <zero/host/host_backend.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/offload.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace zero::test {

/// Offloads all that stage N can keep in a file.
template <int N>
using OffloadAll = std::conditional_t<
    N == 3,
    Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights,
               BufferKind::parameters>>,
    Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>>;

template <int N>
using InFile = ZeroStage<N, Parameters<bfloat16>, OffloadAll<N>>;

inline FileTierOptions in_folder(TemporaryFolder const& folder, FileCalls* calls = nullptr) {
    return {.path = folder.path(),
            .chunk_bytes = 1500,
            .depth = 2,
            .allow_page_cache = true,
            .calls = calls};
}

/// Files in memory. Requests pause at random, so that a missing event shows.
class DelayedFiles final : public FileCalls {
public:
    /// @param longest_pause in turns of the other threads
    explicit DelayedFiles(std::uint64_t seed, unsigned longest_pause = 40)
        : _seed(seed), _longest(longest_pause) {}

    std::atomic<std::size_t> reads{0}, writes{0}, created{0}, closed{0}, allocated{0};
    std::atomic<std::uint64_t> bytes_read{0}, bytes_written{0}; ///< of all requests
    std::atomic<bool> is_aligned{true};                         ///< whether all requests were
    std::size_t room = std::numeric_limits<std::size_t>::max(); ///< files that the disk can hold
    std::int64_t block = 512;                                   ///< the alignment
    std::function<std::int64_t(std::size_t)> on_read, on_write; ///< a failure of a call, or 0
    std::function<void(std::uint64_t)> before_read_at,
        before_write_at; ///< with the place in the file

    int create(char const*, bool) override {
        std::lock_guard const lock(_mutex);
        int const file = static_cast<int>(created++);
        _files[file] = std::make_unique<std::vector<std::byte>>();
        return file;
    }
    std::int64_t alignment(int, bool) override { return block; }
    int allocate(int file, std::uint64_t size) override {
        if (++allocated > room) {
            return -ENOSPC;
        }
        bytes(file).resize(size);
        return 0;
    }
    std::int64_t read(int file, void* to, std::size_t count, std::uint64_t offset) override {
        std::size_t const call = reads++;
        check(to, count, offset);
        if (before_read_at) {
            before_read_at(offset);
        }
        pause(call);
        std::int64_t const failure = on_read ? on_read(call) : 0;
        if (failure != 0) {
            return failure;
        }
        std::memcpy(to, bytes(file).data() + offset, count);
        bytes_read += count;
        return static_cast<std::int64_t>(count);
    }
    std::int64_t write(int file, void const* from, std::size_t count,
                       std::uint64_t offset) override {
        std::size_t const call = writes++;
        check(from, count, offset);
        if (before_write_at) {
            before_write_at(offset);
        }
        pause(call + 7);
        std::int64_t const failure = on_write ? on_write(call) : 0;
        if (failure != 0) {
            return failure;
        }
        std::memcpy(bytes(file).data() + offset, from, count);
        bytes_written += count;
        return static_cast<std::int64_t>(count);
    }
    void close(int) noexcept override { ++closed; }

    std::vector<std::byte>& bytes(int file) {
        std::lock_guard const lock(_mutex);
        return *_files.at(file);
    }

    /// Blocks until no request has begun for some turns of the other threads: those that wait for
    /// nothing more have come.
    void wait_for_rest() const {
        constexpr int longest = 4;
        std::size_t seen = 0;
        for (int turn = 0; turn < longest; ++turn) {
            if (std::size_t const now = reads + writes; now != seen) {
                seen = now;
                turn = 0;
            }
            std::this_thread::yield();
        }
    }

private:
    void check(void const* memory, std::size_t count, std::uint64_t offset) {
        auto const all = reinterpret_cast<std::uintptr_t>(memory) | count | offset;
        is_aligned = is_aligned && all % static_cast<std::uintptr_t>(block) == 0;
    }

    void pause(std::size_t call) const {
        std::mt19937_64 random(_seed + call);
        for (auto turn = _longest == 0 ? 0 : random() % _longest; turn > 0; --turn) {
            std::this_thread::yield();
        }
    }

    std::mutex _mutex;
    std::map<int, std::unique_ptr<std::vector<std::byte>>> _files;
    std::uint64_t _seed;
    unsigned _longest;
};

/// A queue that is slower than files: each of its commands begins when these are at rest, so that a
/// request that should wait for the command comes before it. Without files it is an ordinary one.
class PatientQueue final : public host::ThreadedQueue {
public:
    explicit PatientQueue(DelayedFiles const* files = nullptr)
        : ThreadedQueue(default_capacity, host::WhenFull::wait, pause(files)) {}
    PatientQueue(std::size_t capacity, MemoryResource& memory)
        : ThreadedQueue(capacity, host::WhenFull::wait, memory, pause(files_of_engines)) {}

    /// Those for which queues wait that an engine makes.
    inline static std::atomic<DelayedFiles const*> files_of_engines{nullptr};

private:
    static host::Command pause(DelayedFiles const* files) {
        return files == nullptr ? host::Command()
                                : host::Command([files] { files->wait_for_rest(); });
    }
};

/// Makes such queues.
struct PatientBackend : HostBackend {
    using OwnedQueue = PatientQueue;
    static Queue handle(OwnedQueue& queue) noexcept { return &queue; }
};

/// Returns units of a few parameters, most of them small and some of many blocks.
inline std::vector<ParameterSpec> random_specs(std::mt19937_64& random, bool is_whole) {
    std::vector<ParameterSpec> specs;
    std::size_t const units = 2 + random() % 3;
    for (std::size_t unit = 0; unit < units; ++unit) {
        for (std::size_t count = 1 + random() % 3; count > 0; --count) {
            ParameterSpec spec;
            spec.name = "p" + std::to_string(specs.size());
            spec.units = {unit};
            spec.elements = random() % 3 == 0 ? 1 + random() % 2500 : 1 + random() % 150;
            spec.trainable = specs.empty() || random() % 8 != 0;
            if (is_whole) {
                spec.elements = (1 + random() % 5) * (1 + random() % 40);
            }
            specs.push_back(spec);
        }
    }
    return specs;
}

/// Trains and returns the joined state after each step.
/// @param awaited the queue of each engine waits for them, unless null
template <class Stage>
std::vector<Trained> history(int world, typename Stage::Options const& options,
                             Training const& training, DelayedFiles const* awaited = nullptr) {
    using T = typename Stage::ParameterType;
    using G = typename Stage::GradientType;
    using Communicator = typename Stage::Communicator;
    auto const ranks =
        on_ranks<std::vector<Trained>, Communicator>(world, [&](Communicator& communicator) {
            auto parameters = registration<T, G>(training.specs);
            auto own_options = options;
            auto const memory = provide_memory(parameters, own_options);
            std::optional<PatientQueue> queue;
            if (awaited != nullptr) {
                own_options.communication_queue = &queue.emplace(awaited);
            }
            Stage engine(communicator, parameters, own_options);
            std::vector<Trained> states;
            for (std::uint64_t step = 0; step < training.steps; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 1,
                               training.learning_rate, training.binades);
                states.emplace_back();
                states.back().resize(training.specs);
                states.back().parameters = full_parameters(engine);
                if (step % 2 == 1 || step + 1 == training.steps) { // visits settle the pipeline
                    engine.for_each_owned_slice(
                        [&](auto const& slice) { states.back().add(slice); });
                }
            }
            return states;
        });
    std::vector<Trained> joined;
    for (std::size_t step = 0; step < training.steps; ++step) {
        std::vector<Trained> of_step;
        for (auto const& rank : ranks) {
            of_step.push_back(rank[step]);
        }
        joined.push_back(Trained::joined(of_step));
    }
    return joined;
}

} // namespace zero::test
