// Where more than 4 ranks of a loopback share a core, the queues that an engine owns have no
// threads: which queues these are, that no bit and no plan changes, and how failures end.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/timed.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/zero_stage.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

namespace zero::test::crowded_ranks_test {

namespace {

/// Keeps this thread, and those that it starts, on one core.
class OneCore {
public:
    OneCore() {
        REQUIRE(sched_getaffinity(0, sizeof _all, &_all) == 0);
        std::size_t core = 0;
        while (!CPU_ISSET(core, &_all)) {
            ++core;
        }
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    }
    OneCore(OneCore const&) = delete;
    OneCore& operator=(OneCore const&) = delete;
    ~OneCore() { sched_setaffinity(0, sizeof _all, &_all); }

private:
    cpu_set_t _all{};
};

constexpr int crowd = 6; ///< ranks; 4 may have threads on one core

enum class Uses { defaults, own_queue, inline_queue, compute_queue, own_gathers, mixed };

struct Chosen {
    int is_inline = -1;
    bool is_told = false;
    std::size_t ring = 0; ///< bytes
    std::vector<std::uint32_t> bits;
};

template <class Engine>
void take_step(Engine& engine, host::Queue& compute, int rank, int step) {
    engine.begin_step();
    for (std::size_t const micro_step : engine.micro_steps(2)) {
        compute.synchronise();
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            auto const weights = engine.acquire(unit);
        }
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const weights = engine.acquire(unit);
            auto const gradients = engine.gradients(unit);
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                auto const gradient = gradients[parameter];
                auto const key = static_cast<std::uint64_t>(8 * rank + 2 * step) + micro_step;
                compute.enqueue([=] {
                    for (std::size_t i = 0; i < gradient.size(); ++i) {
                        gradient[i] += noise(key, unit, parameter, i);
                    }
                });
            }
            engine.gradients_ready(unit);
        }
    }
    engine.step(0.1);
}

/// Trains two steps.
template <class Stage, class Communicator>
Chosen choose(Communicator& communicator, Uses uses) {
    int const rank = communicator.rank();
    if (uses == Uses::mixed) { // ranks choose on their own
        uses = static_cast<Uses>(rank % static_cast<int>(Uses::mixed));
    }
    host::DelayingQueue queue(static_cast<std::uint64_t>(rank));
    typename Stage::Options options{.gradient_clipping = 0.5F};
    if (uses == Uses::own_queue) {
        options.communication_queue = &queue;
    } else if (uses == Uses::inline_queue) {
        options.communication_queue = HostBackend::default_compute_queue();
    } else if (uses == Uses::compute_queue) {
        options.compute_queue = &queue;
    } else if (uses == Uses::own_gathers) {
        options.gather.own_communicator = true;
    }
    Stage engine(communicator, registration<float>(toy_specs()), options);
    Chosen chosen;
    chosen.is_inline = engine.communicates_inline() ? 1 : 0;
    chosen.is_told =
        describe(engine).find(", collectives on the calling thread") != std::string::npos;
    chosen.ring = engine.memory_plan()[BufferKind::commands].bytes();
    for (int step = 0; step < 2; ++step) {
        take_step(engine, *options.compute_queue, rank, step);
    }
    chosen.bits = snapshot(engine);
    return chosen;
}

template <int N>
std::vector<Chosen> choose(int ranks, Uses uses) {
    return on_ranks<Chosen>(ranks, [&](LoopbackCommunicator& communicator) {
        return choose<ZeroStage<N>>(communicator, uses);
    });
}

/// Checks the choice of each rank, and that its bits are those of `expected`.
void check(std::vector<Chosen> const& ranks, int is_inline, std::vector<Chosen> const& expected) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        CHECK(ranks[rank].is_inline == is_inline);
        CHECK(ranks[rank].is_told == (is_inline == 1));
        CHECK(ranks[rank].bits == expected[rank].bits);
    }
}

} // namespace

TEST_CASE("Where more than 4 ranks share a core, an engine's queue has no thread, which changes "
          "no bit and no plan") {
    OneCore const here;
    in_every_stage([]<int N>() {
        auto const crowded = choose<N>(crowd, Uses::defaults);
        auto const computing = choose<N>(crowd, Uses::compute_queue);
        check(crowded, 1, crowded);
        check(computing, 0, crowded);
        check(choose<N>(crowd, Uses::own_queue), 0, crowded);
        check(choose<N>(crowd, Uses::inline_queue), 1, crowded);
        check(choose<N>(crowd, Uses::own_gathers), 1, crowded);
        CHECK(crowded[0].ring == computing[0].ring);
        CHECK(crowded[0].ring > 0);
        auto const few = choose<N>(4, Uses::defaults);
        check(few, 0, few);
        CHECK(few[0].bits != crowded[0].bits); // control: another number of ranks, other bits
    });
}

TEST_CASE("Ranks with and without threads have the same bits together") {
    OneCore const here;
    in_every_stage([]<int N>() {
        auto const expected = choose<N>(crowd, Uses::defaults);
        std::vector<Chosen> const mixed = on_ranks<Chosen>(crowd, [](auto& communicator) {
            return choose<ZeroStage<N>>(communicator, Uses(communicator.rank() % 4));
        });
        for (std::size_t rank = 0; rank < mixed.size(); ++rank) {
            CHECK(mixed[rank].is_inline == (rank % 2 == 0 ? 1 : 0));
            CHECK(mixed[rank].bits == expected[rank].bits);
        }
    });
}

TEST_CASE("Ranks in groups, behind a choice and under decorators have no threads in a crowd; those "
          "of a timeline, and offloads, have") {
    OneCore const here;
    using Hosts = Groups<LoopbackCommunicator, Hybrid>;
    auto const groups = [](Uses uses) {
        return on_ranks<Chosen, Hosts>(crowd, {.shard = 3}, [&](Hosts& hosts) {
            return choose<ZeroStage<3, Hosts>>(hosts, uses);
        });
    };
    auto const grouped = groups(Uses::own_queue);
    check(groups(Uses::defaults), 1, grouped);
    check(groups(Uses::own_gathers), 1, grouped);

    auto const flat = choose<3>(crowd, Uses::own_queue);
    check(on_ranks<Chosen>(crowd,
                           [](LoopbackCommunicator& inner) {
                               using Any = AnyCommunicator<LoopbackCommunicator>;
                               Any communicator(&inner);
                               return choose<ZeroStage<3, Any>>(communicator, Uses::defaults);
                           }),
          1, flat);
    check(on_ranks<Chosen>(crowd,
                           [](LoopbackCommunicator& inner) {
                               using Recorded = Timed<LoopbackCommunicator>;
                               Recorded communicator(inner, nullptr);
                               return choose<ZeroStage<3, Recorded>>(communicator, Uses::defaults);
                           }),
          0, flat);
    TemporaryFolder const folder;
    auto const offloading = on_ranks<int>(crowd, [&](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<3, Offload<To<FileTier, BufferKind::optimizer_state>>>;
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.offload = {.path = folder.path()}});
        return engine.communicates_inline() ? 1 : 0;
    });
    CHECK(offloading == std::vector<int>(crowd, 0));
}

namespace {

/// Counts sums over ranks of gradients, of all ranks.
struct CountingBackend : HostBackend {
    inline static std::atomic<int> sums{0};

    template <class T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int ranks,
                          std::size_t elements) {
        HostBackend::sum_ranks(queue, out, peers, ranks, elements);
        queue->enqueue([] { ++sums; });
    }
};

} // namespace

TEST_CASE("A rank that pauses inside a micro-step delays no reduction of its peers where queues "
          "have no threads") {
    OneCore const here;
    using Counting = Loopback<CountingBackend>;
    in_every_stage([]<int N>() {
        CountingBackend::sums = 0;
        auto const seen = on_ranks<int, Counting>(crowd, [&](Counting& communicator) {
            ZeroStage<N, Counting, UnitBucketer> engine(
                communicator, registration<float>(toy_specs()),
                {.reduction = {.schedule = ReductionSchedule::every_micro_step}});
            int sums = 0;
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    for (float& gradient : gradients[parameter]) {
                        gradient = 1.0F;
                    }
                }
                engine.gradients_ready(unit);
                auto const end = std::chrono::steady_clock::now() + test_time_out.time_out;
                bool const pauses = unit + 1 == engine.layout().units() && communicator.rank() == 0;
                while (pauses && sums < crowd && std::chrono::steady_clock::now() < end) {
                    std::this_thread::yield();
                    sums = CountingBackend::sums;
                }
            }
            engine.end_micro_step();
            engine.step(0.1);
            return engine.communicates_inline() ? sums : -1;
        });
        CHECK(seen[0] >= crowd);
        CHECK(seen[crowd - 1] == 0);
    });
}

TEST_CASE("An exception, a rank that stays away and an engine that ends inside a step reach all "
          "ranks where queues have no threads") {
    OneCore const here;
    constexpr int failing = 1;
    enum class Ends { by_exception, by_absence, by_destruction };
    auto const observe = []<int N>(Ends how) {
        std::vector<Outcome> outcomes(crowd);
        std::atomic<int> ended{0};
        (void)outcome_of([&] {
            auto const time_out = std::chrono::milliseconds(how == Ends::by_absence ? 500 : 60'000);
            run_ranks(crowd, {.time_out = time_out}, [&](LoopbackCommunicator& communicator) {
                int const rank = communicator.rank();
                try {
                    ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
                    take_step(engine, *HostBackend::default_compute_queue(), rank, 0);
                    engine.begin_step();
                    engine.begin_micro_step(MicroStep::last);
                    if (rank == failing && how == Ends::by_exception) {
                        throw std::runtime_error("a bad batch");
                    }
                    while (rank == failing && how == Ends::by_absence && ended < crowd - 1) {
                        std::this_thread::yield();
                    }
                    if (rank != failing) {
                        engine.end_micro_step();
                        engine.step(0.1);
                    }
                } catch (...) {
                    outcomes[static_cast<std::size_t>(rank)] = outcome_of_current_exception();
                    ++ended;
                    throw;
                }
            });
        });
        return outcomes;
    };
    in_every_stage([&]<int N>() {
        for (Ends const how : {Ends::by_exception, Ends::by_absence, Ends::by_destruction}) {
            auto const outcomes = observe.template operator()<N>(how);
            int timed_out = 0;
            for (int rank = 0; rank < crowd; ++rank) {
                Outcome const& outcome = outcomes[static_cast<std::size_t>(rank)];
                INFO("rank " << rank << ": " << outcome.type << ": " << outcome.message);
                timed_out += outcome.type == "TimedOut" ? 1 : 0;
                if (rank != failing) {
                    CHECK((outcome.type == "Aborted" || outcome.type == "TimedOut"));
                    CHECK_THAT(outcome.message,
                               contains_text(how == Ends::by_exception ? "a bad batch"
                                             : how == Ends::by_absence
                                                 ? "500 ms for rank 1 "
                                                 : "rank 1 destroyed its engine inside a step"));
                }
            }
            CHECK(timed_out == (how == Ends::by_absence ? 1 : 0));
        }
    });
}

} // namespace zero::test::crowded_ranks_test
