#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <zero/comm/checked.hpp>
#include <zero/comm/communicator.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/timed.hpp>

// Sums and minima of integers in one collective. The conformance suite checks the values.

namespace zero::test::integers_together_test {

namespace {

/// A backend that cannot sum and minimise in one command.
struct SeparateBackend : HostBackend {
    static void reduce_integers() = delete;
};

thread_local std::size_t commands = 0; ///< reductions of integers and copies of this rank

struct CountingBackend : HostBackend {
    static void reduce_integers(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                                int world, std::size_t sums, std::size_t minima) {
        ++commands;
        HostBackend::reduce_integers(queue, out, peers, world, sums, minima);
    }
    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        ++commands;
        HostBackend::copy_bytes(queue, out, in, bytes);
    }
};

static_assert(detail::ReducesIntegersTogether<LoopbackCommunicator>);
static_assert(detail::ReducesIntegersTogether<Recording<LoopbackCommunicator>>);
static_assert(detail::ReducesIntegersTogether<Checked<LoopbackCommunicator>>);
static_assert(detail::ReducesIntegersTogether<Timed<LoopbackCommunicator>>);
static_assert(!detail::ReducesIntegersTogether<Loopback<SeparateBackend>>);
static_assert(!detail::ReducesIntegersTogether<Recording<Loopback<SeparateBackend>>>);

} // namespace

TEST_CASE("Ranks that sum different numbers of integers get a mismatch that names both") {
    for (bool const is_checked : {false, true}) {
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& inner) {
            std::vector<std::int64_t> values(8);
            host::InlineQueue queue;
            auto const sums = static_cast<std::size_t>(3 + inner.rank());
            if (is_checked) {
                Checked<LoopbackCommunicator> checked(inner);
                checked.all_reduce_integers(values.data(), sums, 8 - sums, &queue, {"figures", 0});
            } else {
                inner.all_reduce_integers(values.data(), sums, 8 - sums, &queue, {"figures", 0});
            }
        });
        for (Outcome const& outcome : outcomes.ranks) {
            CHECK(outcome.type == "CollectiveMismatch");
            CHECK_THAT(outcome.message, contains_text("sum of 3, minimum of the others")
                                            && contains_text("sum of 4, minimum of the others"));
        }
    }
}

TEST_CASE("A group of one rank keeps the integers and enqueues neither a reduction nor a copy") {
    commands = 0;
    auto ranks = Loopback<CountingBackend>::make_group(1);
    std::vector<std::int64_t> values{1, std::numeric_limits<std::int64_t>::min(), 3};
    auto const before = values;
    host::InlineQueue queue;
    ranks[0].all_reduce_integers(values.data(), 2, 1, &queue);
    ranks[0].all_reduce_integers(values.data(), 3, IntegerReduction::sum, &queue);
    ranks[0].all_reduce_integers(values.data(), 3, IntegerReduction::min, &queue);
    CHECK(values == before);
    CHECK(commands == 0);
    auto const others = run_and_observe<Loopback<CountingBackend>>(2, [](auto& communicator) {
        commands = 0;
        std::vector<std::int64_t> some{1, 2, 3};
        host::InlineQueue own;
        communicator.all_reduce_integers(some.data(), 2, 1, &own);
        if (commands != 2 || some != std::vector<std::int64_t>{2, 4, 3}) {
            throw std::logic_error("two ranks need a reduction and a copy");
        }
    });
    for (Outcome const& outcome : others.ranks) {
        CHECK(outcome.type == "returned");
    }
}

} // namespace zero::test::integers_together_test
