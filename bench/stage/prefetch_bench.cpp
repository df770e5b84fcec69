// Measures how far stage 3 hides gathers behind computation, and the host cost of acquiring a unit
// that is resident. Delays stand for the work: the model sleeps on a threaded compute queue, and a
// delaying communicator sleeps on the communication queue, as one of two ranks. The twin sleeps on
// one queue for as long as one of the two, so its time over that of zero is the overlap: 1 is
// perfect.

#include "stage/one_of_many.hpp"

#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace zero;

constexpr std::size_t unit_elements = 1024;
constexpr std::chrono::microseconds delay{
    2000}; ///< time of a forward pass and of a gather, per unit

/// Every gather and every reduction takes the delay.
class Delaying : public bench::OneOfMany {
public:
    using OneOfMany::OneOfMany;

    template <class T>
    void all_gather(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag tag = {}) {
        wait(queue);
        OneOfMany::all_gather(send, receive, cuts, queue, tag);
    }
    template <class T>
    void reduce_scatter(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag tag = {}) {
        wait(queue);
        OneOfMany::reduce_scatter(send, receive, cuts, queue, tag);
    }

    bool is_delaying = false;

private:
    void wait(Queue queue) const {
        if (is_delaying) {
            queue->enqueue([] { std::this_thread::sleep_for(delay); });
        }
    }
};

std::vector<Parameter<float>> model(std::size_t units) {
    std::vector<Parameter<float>> parameters;
    for (std::size_t unit = 0; unit < units; ++unit) {
        parameters.push_back(
            {.name = std::to_string(unit), .elements = unit_elements, .units = {unit}});
    }
    return parameters;
}

/// A backward pass takes twice as long as a forward pass, and has a gather and a reduction. So
/// computation and communication take equally long in both.
void micro_step(auto& engine, host::Queue& compute, bool is_delaying) {
    std::size_t const units = engine.layout().units();
    auto const work = [&](std::chrono::microseconds time) {
        if (is_delaying) {
            compute.enqueue([time] { std::this_thread::sleep_for(time); });
        }
    };
    for (std::size_t unit = 0; unit < units; ++unit) {
        auto const weights = engine.acquire(unit);
        work(delay);
    }
    for (std::size_t unit = units; unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        (void)gradients[unit]; // zeros
        work(2 * delay);
        engine.gradients_ready(unit);
    }
}

void overlap(benchmark::State& state, GatherOptions const& gather) {
    Delaying communicator(2);
    host::ThreadedQueue compute;
    ZeroStage<3, Delaying> engine(communicator, model(static_cast<std::size_t>(state.range(0))),
                                  {.gather = gather, .compute_queue = &compute});
    auto const step = [&](bool is_delaying) {
        communicator.is_delaying = is_delaying;
        engine.begin_step();
        engine.begin_micro_step();
        micro_step(engine, compute, is_delaying);
        engine.end_micro_step();
        (void)engine.step(0.1).report();
    };
    step(false); // records the order
    for (auto _ : state) {
        step(true);
    }
}

void sleeps(benchmark::State& state) {
    host::ThreadedQueue queue;
    for (auto _ : state) {
        for (std::int64_t count = 0; count < 3 * state.range(0); ++count) {
            queue.enqueue([] { std::this_thread::sleep_for(delay); });
        }
        queue.synchronise();
    }
}

/// Acquires and releases a unit that is held elsewhere.
template <int N>
void acquire(benchmark::State& state, GatherOptions const& gather) {
    bench::OneOfMany communicator(2);
    ZeroStage<N, bench::OneOfMany> engine(
        communicator, model(static_cast<std::size_t>(state.range(0))), {.gather = gather});
    auto const held = engine.acquire(0);
    for (auto _ : state) {
        benchmark::DoNotOptimize(engine.acquire(0));
    }
}

[[maybe_unused]] bool const is_registered = [] {
    struct Case {
        char const* name;
        GatherOptions gather;
    };
    for (Case const& chosen :
         {Case{"none_ahead", {.prefetch_elements = 0}}, Case{"one_ahead", {}},
          Case{"two_ahead", {.prefetch_elements = 2 * unit_elements}},
          Case{"two_ahead_last_kept",
               {.prefetch_elements = 2 * unit_elements, .keep_after_forward = 1}}}) {
        std::string const name = std::string("overlap/") + chosen.name;
        benchmark::RegisterBenchmark((name + "/twin").c_str(), sleeps)
            ->Arg(48)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
        benchmark::RegisterBenchmark((name + "/zero").c_str(), overlap, chosen.gather)
            ->Arg(48)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
    }
    // Stages 0 to 2 gather nothing, so their acquisition is the twin.
    for (Case const& chosen :
         {Case{"resident", {}}, Case{"persistent", {.persistence_threshold = unit_elements}}}) {
        std::string const name = std::string("acquire/") + chosen.name;
        benchmark::RegisterBenchmark((name + "/twin").c_str(), acquire<2>, chosen.gather)->Arg(32);
        benchmark::RegisterBenchmark((name + "/zero").c_str(), acquire<3>, chosen.gather)->Arg(32);
    }
    return true;
}();

} // namespace
