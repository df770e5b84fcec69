#include "comm/conformance.hpp"
#include "fake_communicator.hpp"
#include "support/faulty_backend.hpp"
#include "support/outcome.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/ops/tree_sum.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/policy/gradient_reduction.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

// NcclOrder::rank over a fake NCCL that adds in another order.
// tests/cuda/emulated/nccl_graph_test.cu trains with it on devices.

namespace zero::test::nccl_order_test {

namespace {

using cuda::NcclMode;
using cuda::NcclOrder;

template <NcclMode mode, NcclOrder order, std::size_t scratch>
struct Fixture {
    using Communicator = FakeNcclCommunicator<mode>;

    template <class Body>
    static void run(int world, Body const& body) {
        FakeSumsScope const sums({order, scratch, true});
        run_nccl_ranks<Communicator>(world,
                                     [&](Communicator& communicator) { body(communicator); });
    }
};

constexpr std::size_t large = std::size_t{8} << 20U;
using InOneRound = Fixture<NcclMode::blocking, NcclOrder::rank, large>;
using InRounds = Fixture<NcclMode::non_blocking, NcclOrder::rank, 1>; // 256 floats of each extent
using Library = Fixture<NcclMode::blocking, NcclOrder::library, large>;

/// Returns whether a reduce-scatter and an all-reduce of random values have the bits of rank order.
template <class OfOrder, class T>
bool adds_in_rank_order(std::size_t extent) {
    constexpr int world = 3;
    auto const cuts = cuts_of({extent, extent + 1, extent / 2});
    std::array<bool, world> is_equal{};
    OfOrder::run(world, [&](auto& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto const source = values_of<T>(communicator.rank(), cuts.back(), 7);
        std::vector<T> own(cuts[rank + 1] - cuts[rank]);
        std::vector<T> all(cuts.back());
        host::ThreadedQueue queue;
        communicator.reduce_scatter(source.data(), own.data(), cuts, &queue, {"own", 0});
        communicator.all_reduce(source.data(), all.data(), cuts, &queue, {"all", 0});
        queue.synchronise();
        is_equal[rank] = equal_bits(own, sums_of<T>(world, cuts[rank], cuts[rank + 1], 7))
                         && equal_bits(all, sums_of<T>(world, 0, cuts.back(), 7));
    });
    return is_equal[0] && is_equal[1] && is_equal[2];
}

/// Memory of an engine that allocates nothing.
class UnusedMemory final : public MemoryResource {
public:
    void* allocate(std::size_t /*bytes*/, BufferKind /*kind*/) override {
        throw std::runtime_error("an engine allocated");
    }
    void deallocate(void* /*memory*/, std::size_t /*bytes*/,
                    BufferKind /*kind*/) noexcept override {}
};

/// Makes a communicator of two ranks on each of two threads, and returns what `body` threw there.
template <class Body>
std::vector<Outcome> outcomes_of(cuda::NcclOptions const (&options)[2], Body const& body) {
    FakeWorld fakes;
    cuda::NcclInterface const interfaces{&fakes.nccl, &fakes.system};
    cuda::NcclUniqueId const id = cuda::make_unique_id(interfaces);
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            outcomes[rank] = outcome_of([&] {
                FakeSystem::device = static_cast<int>(rank);
                auto communicator = cuda::BasicNcclCommunicator<HostBackend>::from_unique_id(
                    interfaces, id, static_cast<int>(rank), 2, options[rank]);
                body(communicator);
                communicator.synchronise();
            });
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return outcomes;
}

} // namespace

TEMPLATE_TEST_CASE("In rank order NCCL passes the suite of communicators, whatever order its own "
                   "reductions have",
                   "", InOneRound, InRounds) {
    check_sums_of<TestType, float>();
    check_sums_of<TestType, bfloat16>();
    check_sums_of<TestType, float16>();
    check_exchanges_of<TestType, float, bfloat16>();
    check_number_sums<TestType>();
    check_abort<TestType>();
}

TEMPLATE_TEST_CASE("Extents that are larger than the slots are added in rounds, and NCCL's own "
                   "order gives other bits",
                   "", float, bfloat16, float16) {
    for (std::size_t const extent : {255U, 256U, 512U, 1300U}) {
        CAPTURE(extent);
        CHECK(adds_in_rank_order<InRounds, TestType>(extent));
        CHECK(adds_in_rank_order<InOneRound, TestType>(extent));
        CHECK_FALSE(adds_in_rank_order<Library, TestType>(extent));
    }
}

TEST_CASE("The memory of rank order is what the plan of an engine says, and the library's order "
          "has none") {
    using Stage = ZeroStage<2, cuda::BasicNcclCommunicator<HostBackend>>;
    auto const row = static_cast<std::size_t>(BufferKind::communicator);
    for (auto const& [order, scratch, bytes] :
         {std::tuple{NcclOrder::library, large, std::size_t{0}},
          std::tuple{NcclOrder::rank, large, large},
          std::tuple{NcclOrder::rank, std::size_t{1}, std::size_t{2048}},
          std::tuple{NcclOrder::rank, std::size_t{10000}, std::size_t{2 * 4992}}}) {
        CAPTURE(scratch);
        HostMemoryResource memory[2];
        cuda::NcclOptions options[2];
        for (std::size_t rank = 0; rank < 2; ++rank) {
            options[rank] = {.order = order, .scratch_bytes = scratch, .memory = &memory[rank]};
        }
        std::size_t planned[2] = {};
        std::size_t allocated[2] = {};
        for (Outcome const& outcome : outcomes_of(options, [&](auto& communicator) {
                 auto const rank = static_cast<std::size_t>(communicator.rank());
                 Stage engine(communicator, registration<float>(toy_specs()));
                 planned[rank] = engine.memory_plan().rows[row].bytes();
                 allocated[rank] = memory[rank].allocated_bytes(BufferKind::communicator);
                 (void)run_step(engine, rank, 0).report();
                 if (memory[rank].allocated_bytes() != allocated[rank]) {
                     throw std::runtime_error("a step allocated");
                 }
             })) {
            CHECK(outcome == Outcome{});
        }
        for (std::size_t rank = 0; rank < 2; ++rank) {
            CHECK(planned[rank] == bytes);
            CHECK(allocated[rank] == bytes);
            CHECK(memory[rank].allocated_bytes() == 0); // the communicator has ended
        }
    }
}

TEST_CASE("Ranks with another order, or other rounds, get a LayoutMismatch in every stage") {
    cuda::NcclOptions const rank_order{.time_out = std::chrono::seconds(60),
                                       .order = NcclOrder::rank};
    cuda::NcclOptions const library{.time_out = std::chrono::seconds(60)};
    cuda::NcclOptions const rounds{
        .time_out = std::chrono::seconds(60), .order = NcclOrder::rank, .scratch_bytes = 4096};
    in_every_stage([&]<int N>() {
        auto const make = [](auto& communicator) {
            ZeroStage<N, cuda::BasicNcclCommunicator<HostBackend>> const engine(
                communicator, registration<float>(toy_specs()));
        };
        for (auto const& outcome : outcomes_of({rank_order, library}, make)) {
            CHECK(outcome.type == "LayoutMismatch");
            CHECK_THAT(outcome.message, contains_text("'communicator'"));
        }
        for (auto const& outcome : outcomes_of({rank_order, rounds}, make)) {
            CHECK(outcome.type == "LayoutMismatch");
        }
        for (auto const& outcome : outcomes_of({rank_order, rank_order}, make)) {
            CHECK(outcome == Outcome{});
        }
    });
}

TEST_CASE("In NCCL's own order a tree is refused before anything is allocated or sent, also by a "
          "decorator") {
    using Communicator = cuda::BasicNcclCommunicator<HostBackend>;
    using Compared = Checked<Communicator>;
    cuda::NcclOptions const library{.time_out = std::chrono::seconds(60)};
    std::string const reason =
        "NCCL adds in an order of its own; set cuda::NcclOptions::order = cuda::NcclOrder::rank";
    UnusedMemory memory;
    auto const make = [&]<class Stage>(auto& communicator) {
        typename Stage::Options options;
        options.reduction.micro_batches = 4;
        options.memory = &memory;
        Stage const engine(communicator, registration<float>(toy_specs()), options);
    };
    auto const outcomes = outcomes_of({library, library}, [&](auto& communicator) {
        make.template operator()<ZeroStage<2, TreeReduction<>, Communicator>>(communicator);
    });
    auto const decorated = outcomes_of({library, library}, [&](auto& communicator) {
        Compared compared(communicator);
        make.template operator()<ZeroStage<0, TreeReduction<>, Compared>>(compared);
    });
    for (std::size_t const rank : {0U, 1U}) {
        CHECK(outcomes[rank].type == "InvalidArgument");
        CHECK(outcomes[rank].message
              == "zero: TreeReduction on rank " + std::to_string(rank)
                     + ": this communicator cannot add in a tree: " + reason
                     + ", or use zero::GradientReduction.");
        CHECK(decorated[rank].message == outcomes[rank].message);
    }
    std::vector<float> values(4, 1.0F);
    ops::TreeSum<float> const sum{values.data(), {}};
    std::vector<std::size_t> const cuts{0, 2, 4};
    for (Outcome const& outcome : outcomes_of({library, library}, [&](auto& communicator) {
             host::InlineQueue queue;
             std::string message;
             try {
                 communicator.reduce_scatter(static_cast<float const*>(values.data()), sum, cuts,
                                             &queue, {"tree", 0});
             } catch (InvalidArgument const& error) {
                 message = error.what();
             }
             if (message.find(reason) == std::string::npos || communicator.is_aborted()) {
                 throw std::runtime_error(message);
             }
         })) {
        CHECK(outcome == Outcome{});
    }
}

TEST_CASE("A sum that fails aborts the communicator, and the peers learn why") {
    using Communicator = FakeNcclCommunicator<NcclMode::blocking, FaultyBackend>;
    FakeSumsScope const sums({.order = NcclOrder::rank});
    auto const cuts = cuts_of({100, 100, 100});
    std::vector<Outcome> outcomes(3);
    run_nccl_ranks<Communicator>(3, [&](Communicator& communicator) {
        host::ThreadedQueue queue;
        std::vector<float> values(300, 1.0F);
        if (communicator.rank() == 1) {
            FaultyBackend::failing_queue = &queue;
        }
        outcomes[static_cast<std::size_t>(communicator.rank())] = outcome_of([&] {
            for (int call = 0; call < 1000; ++call) { // until the abort arrives
                communicator.all_reduce(static_cast<float const*>(values.data()), values.data(),
                                        cuts, &queue, {"all", 7});
                queue.synchronise();
            }
        });
        queue.synchronise();
    });
    FaultyBackend::failing_queue = nullptr;
    CHECK(outcomes[1].message == "the sum failed");
    for (std::size_t const rank : {0U, 2U}) {
        CHECK(outcomes[rank].type == "Aborted");
        CHECK_THAT(outcomes[rank].message, contains_text("rank 1: the sum failed"));
    }
}

TEST_CASE("A part of a group adds in rank order as well, and two queues may take turns") {
    InRounds::run(4, [](auto& parent) {
        auto part = parent.split(parent.rank() % 2, 0);
        auto const cuts = cuts_of({700, 300});
        host::DelayingQueue first(static_cast<std::uint64_t>(parent.rank()));
        host::DelayingQueue second(static_cast<std::uint64_t>(parent.rank()) + 10);
        host::Queue* const queues[2] = {&first, &second};
        auto const source = values_of<float>(part.rank(), cuts.back(), 3);
        std::vector<std::vector<float>> sums(20, std::vector<float>(cuts.back()));
        for (std::size_t turn = 0; turn < sums.size(); ++turn) {
            part.all_reduce(source.data(), sums[turn].data(), cuts, queues[turn % 2],
                            {"sums", turn});
        }
        first.synchronise();
        second.synchronise();
        for (auto const& found : sums) {
            if (!equal_bits(found, sums_of<float>(2, 0, cuts.back(), 3))) {
                throw std::runtime_error("other bits");
            }
        }
    });
    SUCCEED();
}

} // namespace zero::test::nccl_order_test
