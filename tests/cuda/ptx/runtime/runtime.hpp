#pragma once

#include "cuda/ptx/values.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

// A stand-in for the CUDA runtime whose kernels are interpreted. Streams are queues that run late
// and in a random legal order. Everything is guarded by one mutex.

namespace zero::test::ptx {

struct Stream;
struct Graph;

using Lock = std::unique_lock<std::recursive_mutex>;

/// One record of an event: a later record does not complete it.
struct Point {
    bool is_done = false;
    Stream* stream = nullptr;
};

struct Event {
    std::shared_ptr<Point> point;          ///< null if it was never recorded
    std::shared_ptr<Graph> captured;       ///< the graph that it was recorded into
    std::vector<std::size_t> dependencies; ///< in that graph
    std::chrono::steady_clock::time_point time;
};

/// A command of a stream, or a wait for a point.
struct Command {
    std::function<void()> run;
    std::shared_ptr<Point> wait;
    bool calls_host = false; ///< runs without the lock, as it may call CUDA or wait for a thread
};

struct Stream {
    std::deque<Command> commands;
    bool is_busy = false;
    bool is_blocking = true; ///< with the legacy stream
    int priority = 0;        ///< kept for the program, and without effect
    std::shared_ptr<Graph> capture;
    std::vector<std::size_t> dependencies; ///< of its next captured command
    std::size_t number = 0;

    [[nodiscard]] bool is_empty() const { return commands.empty() && !is_busy; }
    [[nodiscard]] bool can_run() const {
        return !is_busy && !commands.empty()
               && (commands.front().wait == nullptr || commands.front().wait->is_done);
    }
};

struct Node {
    std::function<void()> run;
    std::vector<std::size_t> dependencies;
};

struct Graph {
    std::vector<Node> nodes;
    Stream* origin = nullptr; ///< null when the capture has ended
    std::vector<Stream*> streams;
    bool is_invalid = false;
    cudaStreamCaptureMode mode{};
    std::thread::id thread;
};

/// The state of the stand-in. Never destroyed, because a thread of its own outlives main().
struct Runtime {
    static Runtime& instance();

    std::recursive_mutex mutex;
    std::condition_variable_any changed;
    std::mt19937_64 random{1};
    std::set<Stream*> streams;
    std::set<std::shared_ptr<Graph>> captures;
    Stream legacy;
    std::size_t next_number = 1;
    int devices = 1;
    int multiprocessors = 5;
    int architecture = 0; ///< of the PTX that is run, such as 90; 0: the latest
};

/// Leaves an error as the last one of this thread, as each failed call does.
cudaError_t result(cudaError_t code);

/// Returns the stream of a handle: the legacy one, the thread's own, or another one.
Stream* stream_of(cudaStream_t handle);
bool is_known(Stream* stream);

/// Enqueues a command, or adds it to the graph that the stream is captured into.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> run, bool calls_host = false);

/// Returns the error of a call that waits, if a capture forbids it now; the capture is invalid
/// then.
cudaError_t error_of_wait();

/// Runs one command of any stream; false if none can run.
bool run_any(Lock& lock);
void wait_for(Stream* stream, Lock& lock);
void wait_for_all(Lock& lock);

/// Frees device memory at once.
void free_device_memory(void* memory);

} // namespace zero::test::ptx
