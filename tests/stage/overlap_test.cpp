#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <condition_variable>
#include <mutex>

// Reductions overlap the backward pass: a backward pass that waits for the reduction of its first
// bucket completes.

namespace zero::test::overlap_test {

namespace {

constexpr int world = 2;

/// Opens once. Waiting gives up after the time-out of the tests.
class Gate {
public:
    void open() {
        {
            std::lock_guard const lock(_mutex);
            _is_open = true;
        }
        _opened.notify_all();
    }

    bool wait() {
        std::unique_lock lock(_mutex);
        return _opened.wait_for(lock, test_time_out.time_out, [&] { return _is_open; });
    }

    bool is_open() {
        std::lock_guard const lock(_mutex);
        return _is_open;
    }

private:
    std::mutex _mutex;
    std::condition_variable _opened;
    bool _is_open = false;
};

/// Opens the gate of the calling rank after a sum over ranks.
struct ObservedBackend : HostBackend {
    inline static thread_local Gate* gate = nullptr;

    template <class T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int ranks,
                          std::size_t elements) {
        HostBackend::sum_ranks(queue, out, peers, ranks, elements);
        queue->enqueue([gate = gate] { gate->open(); });
    }
};

using Observed = Loopback<ObservedBackend>;
template <int N>
using Stage = ZeroStage<N, Observed, UnitBucketer>;

struct Seen {
    /// 1 if the wait inside the backward pass ended with an open gate, 0 if not; -1 before.
    int reduced_during_backward = -1;
    bool is_open_before_step = false;
    std::uint64_t step_count = 0;
};

/// Runs a step whose backward pass waits for the reduction of the last unit's bucket before it
/// continues with the other units.
template <int N>
std::vector<Seen> wait_in_backward(bool is_compute_threaded, ReductionSchedule schedule,
                                   bool is_announced) {
    return on_ranks<Seen, Observed>(world, [&](Observed& communicator) {
        Gate gate;
        ObservedBackend::gate = &gate;
        Seen seen;
        host::ThreadedQueue compute;
        typename Stage<N>::Options options{.reduction = {.schedule = schedule}};
        if (is_compute_threaded) {
            options.compute_queue = &compute;
        }
        Stage<N> engine(communicator, registration<float>(toy_specs()), options);
        auto const queue = options.compute_queue;
        engine.begin_step();
        engine.begin_micro_step(is_announced ? MicroStep::last : MicroStep::more);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const weights = engine.acquire(unit);
            auto const gradients = engine.gradients(unit);
            auto const gradient = gradients[engine.layout().unit_parameters(unit).back()];
            bool const waits =
                unit == 3 && (is_announced || schedule == ReductionSchedule::every_micro_step);
            queue->enqueue([=, gate = &gate, result = &seen.reduced_during_backward] {
                if (waits) {
                    *result = gate->wait() ? 1 : 0;
                }
                if (!gradient.empty()) {
                    gradient[0] += 1.0F;
                }
            });
            engine.gradients_ready(unit);
        }
        engine.end_micro_step();
        Observed::Backend::synchronise(Observed::Backend::record(queue));
        seen.is_open_before_step = gate.is_open();
        seen.step_count = engine.step(0.1).report().step_count;
        ObservedBackend::gate = nullptr;
        return seen;
    });
}

void check_overlap(std::vector<Seen> const& ranks) {
    for (Seen const& seen : ranks) {
        CHECK(seen.reduced_during_backward == 1);
        CHECK(seen.is_open_before_step);
        CHECK(seen.step_count == 1);
    }
}

} // namespace

TEST_CASE("A backward pass on a threaded compute queue that waits for its first reduced bucket "
          "completes") {
    in_every_stage([]<int N>() {
        check_overlap(wait_in_backward<N>(true, ReductionSchedule::boundary, true));
        check_overlap(wait_in_backward<N>(true, ReductionSchedule::every_micro_step, false));
    });
}

TEST_CASE(
    "A backward pass on the caller's thread that waits for its first reduced bucket completes") {
    in_every_stage([]<int N>() {
        check_overlap(wait_in_backward<N>(false, ReductionSchedule::boundary, true));
        check_overlap(wait_in_backward<N>(false, ReductionSchedule::every_micro_step, true));
    });
}

TEST_CASE("Without an announced boundary nothing is reduced before step") {
    in_every_stage([]<int N>() {
        for (Seen const& seen : wait_in_backward<N>(true, ReductionSchedule::boundary, false)) {
            CHECK(seen.reduced_during_backward == -1);
            CHECK_FALSE(seen.is_open_before_step);
            CHECK(seen.step_count == 1);
        }
    });
}

TEST_CASE("With an inline communication queue nothing overlaps and every bit is the same") {
    in_every_stage([]<int N>() {
        auto const train = [](bool is_inline, bool is_compute_threaded) {
            return on_ranks<std::vector<std::uint32_t>>(
                world, [&](LoopbackCommunicator& communicator) {
                    host::ThreadedQueue compute;
                    typename ZeroStage<N>::Options options{.gradient_clipping = 0.5F};
                    if (is_inline) {
                        options.communication_queue = HostBackend::default_compute_queue();
                    }
                    if (is_compute_threaded) {
                        options.compute_queue = &compute;
                    }
                    ZeroStage<N> engine(communicator, registration<float>(toy_specs()), options);
                    for (std::uint64_t step = 0; step < 3; ++step) {
                        engine.begin_step();
                        for (auto const micro_step : engine.micro_steps(2)) {
                            compute.synchronise();
                            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                                auto const weights = engine.acquire(unit);
                                auto const gradients = engine.gradients(unit);
                                for (std::size_t const parameter :
                                     engine.layout().unit_parameters(unit)) {
                                    auto const gradient = gradients[parameter];
                                    auto const key =
                                        step * 8 + micro_step * 4
                                        + static_cast<std::uint64_t>(communicator.rank());
                                    options.compute_queue->enqueue([=] {
                                        for (std::size_t i = 0; i < gradient.size(); ++i) {
                                            gradient[i] += noise(key, unit, parameter, i);
                                        }
                                    });
                                }
                                engine.gradients_ready(unit);
                            }
                        }
                        (void)engine.step(0.01);
                    }
                    return snapshot(engine);
                });
        };
        auto const expected = train(false, false);
        CHECK(train(true, false) == expected);
        CHECK(train(true, true) == expected);
        CHECK(train(false, true) == expected);
    });
}

} // namespace zero::test::overlap_test
