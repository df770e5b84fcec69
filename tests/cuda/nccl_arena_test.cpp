#include "fake_communicator.hpp"
#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/cuda/nccl_memory_resource.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

// Engines whose buffers lie in one arena, over a fake NCCL that rounds allocations up and checks
// what its symmetric kernels need: whatever a peer accesses has one offset on all ranks.

namespace zero::test::nccl_arena_test {

namespace {

using cuda::NcclArena;
using cuda::NcclMemoryResource;
using cuda::NcclMode;

using Values = std::vector<std::vector<float>>; ///< values by parameter
template <NcclMode mode>
using Over = FakeNcclCommunicator<mode>;
using Blocking = Over<NcclMode::blocking>;
using NonBlocking = Over<NcclMode::non_blocking>;

constexpr std::size_t granularity = 1 << 16;

/// What a rank saw.
struct Seen {
    Values parameters;
    std::size_t planned = 0; ///< bytes of the kinds that lie in the arena
    std::size_t in_use = 0;  ///< bytes of the arena
    std::size_t taken = 0;   ///< `nccl_bytes`
    bool is_symmetric = false;
};

/// What all ranks did.
struct Run {
    std::vector<Seen> ranks;
    std::size_t allocated = 0; ///< bytes and blocks of all ranks while they trained
    int blocks = 0;
    int windows = 0;
    std::size_t in_windows = 0; ///< collectives
    std::size_t misplaced = 0;
    int left = 0; ///< blocks and windows at the end
};

template <class Engine>
Values train(Engine& engine, std::uint64_t rank) {
    for (std::uint64_t step = 0; step < 2; ++step) {
        (void)run_step(engine, rank, step, 2, 0.01, 12);
    }
    return full_parameters(engine);
}

/// Where ranks meet; one that fails waits for nobody, and nobody waits for it.
class Meeting {
public:
    explicit Meeting(int ranks) : _barrier(ranks) {}
    void wait() { _barrier.arrive_and_wait(); }
    template <class Body>
    void with_rank(Body const& body) {
        try {
            body();
        } catch (...) {
            _barrier.arrive_and_drop();
            throw;
        }
    }

private:
    std::barrier<> _barrier;
};

/// Trains with the buffers of collectives in an arena that has the plan of an engine without one.
template <class Stage>
Run trained_in_arena(int world, std::vector<ParameterSpec> const& specs,
                     typename Stage::Options options, bool symmetric) {
    using Communicator = typename Stage::Communicator;
    options.gradient_clipping = 1.0F;
    Run run;
    run.ranks.resize(static_cast<std::size_t>(world));
    Meeting meeting(world);
    std::shared_ptr<FakeWorld> fakes;
    auto const train_rank = [&](Communicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        Seen& seen = run.ranks[rank];
        if (rank == 0) {
            fakes = communicator.fakes;
            fakes->nccl.granularity = granularity;
        }
        meeting.wait();
        auto const parameters =
            registration<typename Stage::ParameterType, typename Stage::GradientType>(specs);
        MemoryPlan const plan = Stage(communicator, parameters, options).memory_plan();
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            bool const lies_there =
                NcclMemoryResource::is_moved_by_collectives(static_cast<BufferKind>(kind));
            seen.planned += lies_there ? plan.rows[kind].bytes() : 0;
        }
        HostMemoryResource other;
        NcclMemoryResource memory(communicator, other, HostBackend::default_compute_queue(),
                                  {.plan = plan, .symmetric = symmetric});
        auto own = options;
        own.memory = &memory;
        Stage engine(communicator, parameters, own);
        seen.in_use = memory.arena_bytes_in_use();
        seen.parameters = train(engine, rank);
        seen.taken = memory.nccl_bytes();
        seen.is_symmetric = memory.is_symmetric();
        communicator.synchronise();
        meeting.wait();
        if (rank == 0) {
            run.allocated = fakes->nccl.allocated;
            run.blocks = fakes->nccl.allocations;
            run.windows = fakes->nccl.windows;
        }
        meeting.wait();
    };
    run_nccl_ranks<Communicator>(world, [&](Communicator& communicator) {
        meeting.with_rank([&] { train_rank(communicator); });
    });
    run.in_windows = fakes->nccl.in_windows;
    run.misplaced = fakes->nccl.misplaced;
    run.left = fakes->nccl.allocations + fakes->nccl.windows + fakes->nccl.registrations;
    return run;
}

template <class Stage>
Values trained_without(int world, std::vector<ParameterSpec> const& specs,
                       typename Stage::Options options) {
    options.gradient_clipping = 1.0F;
    return on_ranks<Values>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(
            communicator,
            registration<typename Stage::ParameterType, typename Stage::GradientType>(specs),
            options);
        return train(engine, static_cast<std::uint64_t>(communicator.rank()));
    })[0];
}

/// Trains both ways and checks bits, bytes and offsets.
/// @param has_kernels whether NCCL has a kernel for windows for the cuts
template <int N, class... Policies>
void check_arena(int world, std::vector<ParameterSpec> const& specs, bool symmetric,
                 bool has_kernels = true) {
    using Stage = ZeroStage<N, Blocking, Policies...>;
    typename Stage::Options options{};
    if constexpr (N < 3) {
        options.bucketer.bucket_bytes = 1024; // several buckets, as stage 3 has anyway
    }
    auto const run = trained_in_arena<Stage>(world, specs, options, symmetric);
    typename ZeroStage<N, Policies...>::Options plain{};
    plain.bucketer = options.bucketer;
    auto const expected = trained_without<ZeroStage<N, Policies...>>(world, specs, plain);
    std::size_t taken = 0;
    for (Seen const& seen : run.ranks) {
        CHECK(seen.parameters == expected);
        CHECK(seen.in_use >= seen.planned);
        CHECK(seen.in_use < seen.planned + 20 * 128);
        CHECK(seen.taken % granularity == 0);
        CHECK(seen.taken == run.ranks[0].taken); // windows have one size
        CHECK(seen.is_symmetric == symmetric);
        taken += seen.taken;
    }
    CHECK(run.blocks == world);
    CHECK(run.allocated == taken);
    CHECK(run.windows == (symmetric ? world : 0));
    CHECK(run.misplaced == 0);
    CHECK((run.in_windows != 0) == (symmetric && world > 1 && has_kernels));
    CHECK(run.left == 0);
}

/// Makes a communicator of `world` ranks and returns what `body` threw on each.
template <class Communicator, class Body>
std::vector<Outcome> outcomes_of(int world, Body const& body) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
    run_nccl_ranks<Communicator>(world, [&](Communicator& communicator) {
        outcomes[static_cast<std::size_t>(communicator.rank())] =
            outcome_of([&] { body(communicator); });
    });
    return outcomes;
}

MemoryPlan plan_of(BufferKind kind, std::size_t bytes) {
    MemoryPlan plan;
    plan[kind].content_bytes = bytes;
    return plan;
}

} // namespace

TEST_CASE("Engines in an arena have the bits of the loopback, one block a rank and as many bytes "
          "as it says, and no buffer that a peer accesses is elsewhere on another rank") {
    bool const symmetric = GENERATE(false, true);
    for (int const world : {1, 2, 3, 5}) {
        INFO(world << " ranks, symmetric " << symmetric);
        in_every_stage([&]<int N>() {
            check_arena<N>(world, toy_specs(), symmetric);
            check_arena<N, Parameters<bfloat16>>(world, toy_specs(), symmetric);
        });
        check_arena<3, Wire<Int8Blocks>>(world, toy_specs(), symmetric);
        check_arena<3, Wire<Int8Blocks, Int4Blocks, ErrorFeedback<float>>>(world, toy_specs(),
                                                                           symmetric);
        check_arena<2, RoundRobinPartitioner>(world, toy_specs(), symmetric, false);
    }
}

TEST_CASE("Random models of unequal shards lie in symmetric arenas at equal offsets") {
    std::mt19937_64 random(11);
    for (int turn = 0; turn < 12; ++turn) {
        auto const world = static_cast<int>(1 + random() % 5);
        std::vector<ParameterSpec> specs;
        std::size_t const count = 1 + random() % 6;
        for (std::size_t index = 0; index < count; ++index) {
            std::size_t const elements = random() % 4 == 0 ? random() % 4 : random() % 700;
            specs.push_back({"p" + std::to_string(index), elements, {index / 2}, 0, true});
        }
        specs.front().elements += 1; // an engine needs a trainable element
        INFO("turn " << turn << ", " << world << " ranks");
        in_every_stage([&]<int N>() { check_arena<N>(world, specs, true); });
    }
}

TEST_CASE("Ranks take the largest plan of all, and those that disagree about windows are refused "
          "on every rank") {
    auto const outcomes = outcomes_of<NonBlocking>(3, [](NonBlocking& communicator) {
        HostMemoryResource other;
        auto const rank = static_cast<std::size_t>(communicator.rank());
        NcclMemoryResource const memory(
            communicator, other, HostBackend::default_compute_queue(),
            {.plan = plan_of(rank == 1 ? BufferKind::wire : BufferKind::gradients, 5000 * rank + 1),
             .symmetric = true});
        if (memory.nccl_bytes() != (12288 + 4096) + (8192 + 4096)) {
            throw std::runtime_error(std::to_string(memory.nccl_bytes()));
        }
        communicator.synchronise();
        for (bool const first : {false, true}) {
            auto const refused = outcome_of([&] {
                NcclMemoryResource const another(
                    communicator, other, HostBackend::default_compute_queue(),
                    {.plan = plan_of(BufferKind::wire, 1), .symmetric = first == (rank == 2)});
            });
            std::string const text =
                first ? "false on rank 0 and true on rank 2" : "true on rank 0 and false on rank 2";
            if (refused.type != "LayoutMismatch"
                || refused.message.find("cuda::NcclArena::symmetric is " + text)
                       == std::string::npos) {
                throw std::runtime_error(refused.message);
            }
        }
        communicator.rethrow_failure(); // it is usable
    });
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome == Outcome{});
    }
}

TEST_CASE("A shard that is larger on another rank moves no other kind of buffer") {
    constexpr int world = 3;
    std::size_t sums[world] = {};
    std::shared_ptr<FakeWorld> fakes;
    run_nccl_ranks<Blocking>(world, [&](Blocking& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto* const queue = HostBackend::default_compute_queue();
        HostMemoryResource other;
        MemoryPlan plan;
        plan[BufferKind::parameters].content_bytes = 9000 * rank; // no buffer on rank 0
        plan[BufferKind::gradients].content_bytes = 5000 * (world - rank);
        plan[BufferKind::wire].content_bytes = 48 * sizeof(float);
        NcclMemoryResource memory(communicator, other, queue, {.plan = plan, .symmetric = true});
        Buffer<std::byte> const parameters(memory, 9000 * rank, BufferKind::parameters);
        Buffer<std::byte> const gradients(memory, 5000 * (world - rank), BufferKind::gradients);
        Buffer<float> const wire(memory, 48, BufferKind::wire);
        std::vector<std::size_t> const cuts{0, 16, 32, 48};
        std::fill_n(wire.data(), 48, static_cast<float>(rank));
        communicator.all_gather(static_cast<float const*>(wire.data()) + 16 * rank, wire.data(),
                                cuts, queue);
        communicator.reduce_scatter(static_cast<float const*>(wire.data()), wire.data() + 16 * rank,
                                    cuts, queue);
        communicator.synchronise();
        sums[rank] = static_cast<std::size_t>(wire.data()[16 * rank]);
        if (rank == 0) {
            fakes = communicator.fakes;
        }
    });
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(sums[rank] == world * rank);
    }
    CHECK(fakes->nccl.in_windows == 2);
    CHECK(fakes->nccl.misplaced == 0);
}

TEMPLATE_TEST_CASE_SIG("An engine that rebuilds its buckets in a symmetric arena needs its plan "
                       "twice, and with it has the bits of the loopback",
                       "", ((int N), N), 1, 3) {
    using Stage = ZeroStage<N, Blocking>;
    using Plain = ZeroStage<N>;
    constexpr int world = 3;
    auto specs = toy_specs();
    specs.front().elements = 5000; // more than the part's space for alignment
    std::vector<std::size_t> const order{3, 0, 4, 1, 2};
    auto const trained = [&](auto& engine, int rank) {
        for (std::uint64_t step = 0; step < 3; ++step) {
            (void)run_step(engine, static_cast<std::uint64_t>(rank), step, 2, 0.01, 12, order);
        }
        return full_parameters(engine);
    };
    auto const expected = on_ranks<Values>(world, [&](LoopbackCommunicator& communicator) {
        Plain engine(communicator, registration<float>(specs),
                     {.rebuild_buckets = Plain::in_ready_order});
        return trained(engine, communicator.rank());
    });
    std::vector<Values> found(world);
    std::vector<Outcome> refused(world);
    std::shared_ptr<FakeWorld> fakes;
    for (bool const is_twice : {false, true}) {
        run_nccl_ranks<Blocking>(world, [&](Blocking& communicator) {
            auto const rank = static_cast<std::size_t>(communicator.rank());
            auto const parameters = registration<float>(specs);
            typename Stage::Options options{.rebuild_buckets = Stage::in_ready_order};
            MemoryPlan plan = Stage(communicator, parameters, options).memory_plan();
            plan += is_twice ? plan : MemoryPlan{};
            HostMemoryResource other;
            NcclMemoryResource memory(communicator, other, HostBackend::default_compute_queue(),
                                      {.plan = plan, .symmetric = true});
            options.memory = &memory;
            if (is_twice) {
                Stage engine(communicator, parameters, options);
                found[rank] = trained(engine, communicator.rank());
                if (rank == 0) {
                    fakes = communicator.fakes;
                }
            } else {
                Stage engine(communicator, parameters, options);
                refused[rank] = outcome_of([&] { (void)trained(engine, communicator.rank()); });
            }
        });
    }
    CHECK(found == expected);
    CHECK(fakes->nccl.misplaced == 0);
    for (Outcome const& outcome : refused) {
        CHECK_THAT(outcome.message, contains_text("has no place for")
                                        && contains_text("twice the plan with rebuild_buckets"));
    }
}

TEST_CASE("If one rank has no memory for the arena every rank is told, and the communicator stays "
          "usable") {
    auto const outcomes = outcomes_of<Blocking>(3, [](Blocking& communicator) {
        FakeSystem::device = communicator.rank();
        communicator.fakes->nccl.refuses_memory = 1;
        HostMemoryResource other;
        auto const refused = outcome_of([&] {
            NcclMemoryResource const memory(
                communicator, other, HostBackend::default_compute_queue(),
                {.plan = plan_of(BufferKind::wire, 1), .symmetric = true});
        });
        communicator.rethrow_failure();
        std::int64_t sum = 1;
        communicator.all_reduce_integers(&sum, 1, IntegerReduction::sum,
                                         HostBackend::default_compute_queue());
        communicator.synchronise();
        if (sum != 3 || communicator.fakes->nccl.allocations != 0) {
            throw std::runtime_error("something is left");
        }
        throw InvalidArgument(refused.message);
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK_THAT(outcomes[rank].message,
                   contains_text(rank == 1
                                     ? "ncclMemAlloc of 8192 bytes for an arena on rank 1 failed"
                                     : "rank 1 could not allocate 8192 bytes for the arena"));
    }
}

TEMPLATE_TEST_CASE("A rank that fails in the registration of a window releases the others, which "
                   "keep no memory",
                   "", Blocking, NonBlocking) {
    auto const outcomes = outcomes_of<TestType>(3, [](TestType& communicator) {
        HostMemoryResource other;
        communicator.fakes->nccl.refuses_window = 1;
        NcclMemoryResource const memory(communicator, other, HostBackend::default_compute_queue(),
                                        {.plan = plan_of(BufferKind::wire, 1), .symmetric = true});
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK(outcomes[rank].type == (rank == 1 ? "other" : "Aborted"));
        CHECK_THAT(outcomes[rank].message,
                   contains_text("ncclCommWindowRegister (all ranks must make the arena of their "
                                 "cuda::NcclMemoryResource) on rank 1 of 3 failed"));
    }
}

TEST_CASE("The fake sees a buffer that a peer accesses at another offset, and one that is in no "
          "window on some rank") {
    struct Places {
        std::size_t send;
        std::size_t receive;
        bool gathers;
        std::size_t misplaced;
    };
    for (auto const& [send, receive, gathers, misplaced] :
         {Places{0, 0, true, 0}, Places{0, 128, true, 1}, Places{128, 0, true, 0},
          Places{128, 0, false, 1}, Places{0, 128, false, 0}}) {
        CAPTURE(send, receive, gathers);
        std::shared_ptr<FakeWorld> fakes;
        run_nccl_ranks<Blocking>(2, [&, send = send, receive = receive,
                                     gathers = gathers](Blocking& communicator) {
            HostMemoryResource other;
            auto* const queue = HostBackend::default_compute_queue();
            NcclMemoryResource memory(communicator, other, queue,
                                      {.plan = plan_of(BufferKind::wire, 4096), .symmetric = true});
            Buffer<std::byte> const block(memory, 4096, BufferKind::wire);
            bool const is_moved = communicator.rank() == 1;
            void* const sent = block.data() + (is_moved ? send : 0);
            void* const received = block.data() + 2048 + (is_moved ? receive : 0);
            std::vector<std::size_t> const cuts{0, 8, 16};
            if (gathers) {
                communicator.all_gather(static_cast<float const*>(sent),
                                        static_cast<float*>(received), cuts, queue);
            } else {
                std::fill_n(static_cast<float*>(sent), 16, 1.0F);
                communicator.reduce_scatter(static_cast<float const*>(sent),
                                            static_cast<float*>(received), cuts, queue);
            }
            communicator.synchronise();
            if (communicator.rank() == 0) {
                fakes = communicator.fakes;
            }
        });
        CHECK(fakes->nccl.misplaced == misplaced);
        CHECK(fakes->nccl.in_windows == 1);
    }
}

} // namespace zero::test::nccl_arena_test
