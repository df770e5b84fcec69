#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/host/threaded_queue.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

// A call that ends a step, or fails, leaves no command that uses memory of the caller.

namespace zero::test::callers_memory_test {

namespace {

/// Pauses before each command, so that a call which does not wait leaves commands.
class SlowQueue final : public host::ThreadedQueue {
public:
    SlowQueue()
        : ThreadedQueue(default_capacity, host::WhenFull::throw_error, host::Command([] {
                            std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        })) {}
};

enum class Memory { adopted, scattered, registered, handed_over, none };
enum class End { step, caller_update, cancel, gather, peer_fails };

struct Seen {
    bool is_idle = false;     ///< no command was pending when the call returned or threw
    bool is_untouched = true; ///< nothing wrote to the memory afterwards
};

constexpr std::size_t elements = 500; // per parameter

/// Ends a step by `end` and then reuses the memory, while the engine still lives.
template <int N>
std::vector<Seen> seen_after(int world, Memory memory, End end, bool asynchronous) {
    std::vector<Seen> ranks(static_cast<std::size_t>(world));
    auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
        Seen& seen = ranks[static_cast<std::size_t>(communicator.rank())];
        using Zero = ZeroStage<N, Sgd>;
        SlowQueue queue;
        std::vector<float> values(2 * elements, 1.0F), gradients(2 * elements + 1, 0.0F),
            gathered(2 * elements);
        bool const is_owned = memory != Memory::adopted && memory != Memory::scattered;
        std::vector<typename Zero::Registration> parameters(2);
        for (std::size_t i = 0; i < 2; ++i) {
            parameters[i].name = i == 0 ? "a" : "b";
            parameters[i].elements = elements;
            parameters[i].units = {i};
            if (!is_owned) {
                parameters[i].data = values.data() + i * elements;
            }
            if (memory != Memory::handed_over && memory != Memory::none) {
                parameters[i].gradient = gradients.data() + i * (elements + 1);
            }
        }
        typename Zero::Options options;
        options.storage = memory == Memory::adopted     ? Storage::adopted
                          : memory == Memory::scattered ? Storage::scattered
                                                        : Storage::owned;
        if (memory == Memory::adopted) {
            options.adopted_block = values;
        }
        options.asynchronous = asynchronous;
        options.communication_queue = &queue;
        Zero engine(communicator, parameters, options);
        queue.synchronise();
        try {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            for (std::size_t unit = 2; unit-- > 0;) {
                if (memory == Memory::handed_over) {
                    std::vector<float> const gradient(elements, 1.0F);
                    engine.hand_over(unit, unit, gradient).synchronise();
                } else {
                    auto const handle = engine.gradients(unit);
                    std::fill(handle[unit].begin(), handle[unit].end(), 1.0F);
                }
                engine.gradients_ready(unit);
                if (end == End::peer_fails && communicator.rank() == 1) {
                    throw std::runtime_error("the model failed");
                }
            }
            engine.end_micro_step();
            switch (end) {
            case End::cancel: engine.cancel_step(); break;
            case End::caller_update:
                engine.step(0.1, [](auto const& slice) {
                    std::fill(slice.weights().begin(), slice.weights().end(), 2.0F);
                });
                break;
            default: (void)engine.step(0.1);
            }
            if (end == End::gather) {
                engine.gather_to(gathered);
            }
        } catch (Aborted const&) {
            // looked at below, while the engine lives
        }
        seen.is_idle = queue.record().is_complete();
        for (auto* const used : {&values, &gradients, &gathered}) {
            std::fill(used->begin(), used->end(), 7.0F);
        }
        queue.synchronise();
        for (auto* const used : {&values, &gradients, &gathered}) {
            for (float const value : *used) {
                seen.is_untouched = seen.is_untouched && value == 7.0F;
            }
        }
    });
    return ranks;
}

template <int N>
void check_every_end(Memory memory) {
    for (int const world : {1, 2, 3}) {
        for (End const end :
             {End::step, End::caller_update, End::cancel, End::gather, End::peer_fails}) {
            auto const ranks = seen_after<N>(world, memory, end, false);
            INFO("stage " << N << ", W " << world << ", memory " << static_cast<int>(memory)
                          << ", end " << static_cast<int>(end));
            for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
                if (end != End::peer_fails || rank != 1) { // it left before the call returned
                    CHECK(ranks[rank].is_idle);
                    CHECK(ranks[rank].is_untouched);
                }
            }
        }
    }
}

} // namespace

TEST_CASE("No command uses memory of the caller after a step, a cancelled step or a failure") {
    in_every_stage([]<int N>() {
        if constexpr (N < 3) {
            check_every_end<N>(Memory::adopted);
            check_every_end<N>(Memory::scattered);
        }
        check_every_end<N>(Memory::registered);
        check_every_end<N>(Memory::handed_over);
    });
}

TEST_CASE("An asynchronous step returns before its commands have run") {
    // The control: the queue above is slow enough that a missing wait is seen.
    Seen const step = seen_after<1>(1, Memory::adopted, End::step, true)[0];
    CHECK_FALSE(step.is_idle);
    CHECK_FALSE(step.is_untouched);
}

TEST_CASE("A step of an engine that owns all memory does not wait") {
    CHECK_FALSE(seen_after<2>(2, Memory::none, End::step, false)[0].is_idle);
}

} // namespace zero::test::callers_memory_test
