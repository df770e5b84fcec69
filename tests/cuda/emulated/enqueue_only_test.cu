#include "cuda/device_model.cuh"
#include "cuda/scripted_nccl.hpp"

#include "support/stages.hpp"

#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/detail/common/drain.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/stage/wire.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Only the emulated device can count calls of the runtime and stand for several devices.

namespace zero::test::enqueue_only_test {

namespace {

struct Counts {
    std::size_t waits;
    std::size_t allocations;
    std::size_t events_made;
    friend bool operator==(Counts const&, Counts const&) = default;
};

Counts counts() {
    return {emulated::waits, emulated::allocations, emulated::events_made};
}

/// Checks one step in every stage, or in those that shard. @tparam More policies beside bfloat16
/// parameters
template <bool shards, class... More>
void check_calls_of_a_step() {
    in_every_stage([&]<int I>() {
        constexpr int N = shards && I == 0 ? 1 : I;
        using Stage = ZeroStage<N, Parameters<bfloat16>, Loopback<cuda::Backend>, More...>;
        for (int const world : {1, 3}) {
            auto const ranks =
                on_ranks<Counts, typename Stage::Communicator>(world, [&](auto& communicator) {
                    cuda::OwnedStream const stream;
                    typename Stage::Options options;
                    options.gradient_clipping = 0.5F;
                    options.compute_queue = stream.get();
                    Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
                    auto const rank = static_cast<std::uint64_t>(communicator.rank());
                    for (std::uint64_t step = 0; step < 3; ++step) { // early steps create events
                        (void)run_device_step(engine, stream.get(), rank, step, 2, 0.01, 4);
                    }
                    if (world > 1) { // ranks share the pool, and their simultaneous use of it
                                     // depends on scheduling
                        std::vector<cuda::Event> spare;
                        for (int event = 0; event < 200; ++event) {
                            spare.push_back(cuda::Event::record(stream.get()));
                        }
                    }
                    (void)engine.step_count(); // waits, so that later steps find the events of
                                               // earlier ones free
                    Counts const before = counts();
                    auto const ticket = run_device_step(engine, stream.get(), rank, 3, 2, 0.01, 4);
                    Counts const after = counts();
                    (void)ticket.report();
                    return Counts{after.waits - before.waits,
                                  after.allocations - before.allocations,
                                  after.events_made - before.events_made};
                });
            for (Counts const& rank : ranks) {
                CHECK(rank.waits == 0);
                CHECK(rank.allocations == 0);
                CHECK(rank.events_made == 0);
            }
        }
    });
}

} // namespace

TEST_CASE("Between begin_step and step the host does not wait for a device, allocate memory or "
          "create an event",
          "[cuda]") {
    check_calls_of_a_step<false>();
}

TEST_CASE("A step whose update runs on the host neither waits for a device, allocates memory nor "
          "creates an event",
          "[cuda]") {
    using States = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
    check_calls_of_a_step<false, Offload<States>>();
}

TEST_CASE("A step whose gradients travel in codes neither waits for a device, allocates memory nor "
          "creates an event",
          "[cuda]") {
    check_calls_of_a_step<true, DynamicLossScaler, Wire<Plain, Int4Blocks, ErrorFeedback<float>>>();
}

TEST_CASE("Reading a report enqueues nothing, and nothing that an engine does waits for the legacy "
          "stream",
          "[cuda]") {
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>, Loopback<cuda::Backend>>;
        auto const ranks =
            on_ranks<std::array<std::size_t, 3>, typename Stage::Communicator>(2, [](auto& of) {
                std::size_t const legacy = emulated::waits_for_legacy;
                std::size_t copies = 0;
                std::size_t norms = 0;
                {
                    cuda::OwnedStream const stream;
                    typename Stage::Options options;
                    options.gradient_clipping = 0.5F;
                    options.report.group_norms = true;
                    options.skip_limit = 2;
                    options.compute_queue = stream.get();
                    Stage engine(of, registration<bfloat16>(toy_specs()), options);
                    auto const rank = static_cast<std::uint64_t>(of.rank());
                    auto const step = [&](std::uint64_t number) {
                        return run_device_step(engine, stream.get(), rank, number, 2, 0.01, 4);
                    };
                    auto const first = step(0);
                    (void)step(1);
                    std::size_t const before = emulated::copies;
                    norms = first.report().group_norms.size() + engine.last_report().serial;
                    copies = emulated::copies - before;
                    engine.begin_step();
                    (void)static_cast<float>(engine.loss_scale());
                    engine.cancel_step();
                    (void)engine.step_count();
                }
                return std::array{copies, emulated::waits_for_legacy - legacy, norms};
            });
        for (auto const& [copies, legacy, norms] : ranks) {
            CHECK(copies == 0);
            CHECK(legacy == 0);
            CHECK(norms == 2 + 2); // two groups, two steps
        }
    });
}

TEST_CASE("Marking the begin of a timeline does not wait for the legacy stream", "[cuda]") {
    std::size_t const before = emulated::waits_for_legacy;
    cuda::detail::EventClock clock(1);
    clock.clear();
    CHECK(emulated::waits_for_legacy == before);
}

TEST_CASE("An engine over NCCL that references no event after a join creates none in its next step",
          "[cuda]") {
    in_every_stage([&]<int N>() {
        using Stage =
            ZeroStage<N, Parameters<bfloat16>, cuda::BasicNcclCommunicator<cuda::Backend>>;
        Script script;
        auto communicator =
            Stage::Communicator::from_unique_id(script.interfaces(), {}, 0, 1, script.options);
        cuda::OwnedStream const stream;
        typename Stage::Options options;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        std::size_t made = 0;
        for (std::uint64_t step = 0; step < 3; ++step) {
            std::size_t const before = counts().events_made;
            (void)run_device_step(engine, stream.get(), 0, step, 2, 0.01, 4);
            engine.join();
            made = counts().events_made - before;
        }
        CHECK(made == 0);
    });
}

TEST_CASE("Waits, allocations and created events on a device are counted", "[cuda]") {
    Counts const before = counts();
    cuda::OwnedStream const stream;
    DeviceArray<int> const memory(3);
    cuda::Event const event = cuda::Event::record(stream.get());
    event.synchronise();
    Counts const after = counts();
    CHECK(after
          == Counts{before.waits + 2, before.allocations + 1,
                    after.events_made});                // the memory's constructor also waits
    CHECK(after.events_made <= before.events_made + 1); // none if the pool had a free one
}

TEST_CASE("An unreferenced event is recorded again, and the last event destroys all others unless "
          "a table exists",
          "[cuda]") {
    cuda::OwnedStream const stream;
    std::size_t const before = emulated::events_made;
    {
        cuda::Event const kept = cuda::Event::record(stream.get());
        cudaEvent_t first = nullptr;
        {
            cuda::Event const copy = cuda::Event::record(stream.get());
            cuda::Event const other = copy; // the same point
            first = other.handle();
            CHECK(copy.handle() == first);
        }
        CHECK(cuda::Event::record(stream.get()).handle() == first);
        CHECK(emulated::events_made == before + 2);
    }
    CHECK(cuda::Event().is_complete());
    (void)cuda::Event::record(stream.get());
    CHECK(emulated::events_made == before + 3); // the pool was empty
    {
        cuda::SliceTable<UpdateSlice<float, MasterPointers<float, float>, StatePointers<2, float>>>
            table; // an engine has such tables
        (void)cuda::Event::record(stream.get());
        auto const other = std::move(table);
        (void)cuda::Event::record(stream.get());
        CHECK(emulated::events_made == before + 4);
    }
    (void)cuda::Event::record(stream.get());
    CHECK(emulated::events_made == before + 5);
}

TEST_CASE("The gradients of a unit are cleared by one command per bucket and copied from "
          "caller-owned memory by one launch",
          "[cuda]") {
    struct Seen {
        std::size_t fills_of_lease;
        std::size_t copies;
        std::size_t kernels;
        std::vector<float> reduced;
    };
    using Stage = ZeroStage<2, SingleBucketer, Loopback<cuda::Backend>>;
    auto const run = [](bool is_callers, std::size_t odd) {
        return on_ranks<Seen, Stage::Communicator>(1, [&](auto& communicator) {
            constexpr std::size_t tensors = 7;
            cuda::OwnedStream const stream;
            std::vector<DeviceArray<float>> memory;
            std::vector<Parameter<float>> parameters;
            for (std::size_t index = 0; index < tensors; ++index) {
                std::size_t const elements =
                    64 * (index + 1) + odd; // with or without padding after it
                memory.emplace_back(std::vector<float>(elements, static_cast<float>(index + 1)));
                parameters.push_back({.name = "tensor " + std::to_string(index),
                                      .elements = elements,
                                      .units = {0}});
                parameters.back().gradient = is_callers ? memory.back().data() : nullptr;
            }
            Stage::Options options;
            options.compute_queue = stream.get();
            Stage engine(communicator, parameters, options);
            Seen seen{};
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            std::size_t const fills = emulated::fills;
            if (!is_callers) {
                auto const gradients = engine.gradients(0);
                for (std::size_t index = 0; index < tensors; ++index) {
                    (void)gradients[index]; // memory whose address is not taken is cleared again
                }
                seen.fills_of_lease = emulated::fills - fills;
            }
            std::size_t const copies = emulated::copies;
            std::size_t const kernels = emulated::kernels;
            engine.gradients_ready(0);
            seen.copies = emulated::copies - copies;
            seen.kernels = emulated::kernels - kernels;
            engine.end_micro_step();
            for (auto const& norm :
                 engine.gradient_norms(NormKind::infinity, NormScope::parameters)) {
                seen.reduced.push_back(static_cast<float>(norm));
            }
            (void)engine.step(0.0);
            return seen;
        })[0];
    };
    for (std::size_t const odd : {std::size_t{0}, std::size_t{1}}) {
        CAPTURE(odd);
        Seen const own = run(false, odd);
        CHECK(own.fills_of_lease == 1);
        CHECK(own.reduced == std::vector<float>(7, 0.0F));
        Seen const callers = run(true, odd);
        CHECK(callers.kernels == 1);
        CHECK(callers.reduced == std::vector<float>{1, 2, 3, 4, 5, 6, 7});
        CHECK(callers.copies == own.copies); // the copies of the collective
    }
}

TEST_CASE("A stream is drained while another device is current", "[cuda]") {
    emulated::device = 1;
    cuda::OwnedStream const stream;
    emulated::device = 0;
    CHECK_THROWS_AS(cuda::Event::record(stream.get()),
                    CudaError); // events belong to a device
    bool has_run = false;
    cuda::detail::check(
        cudaLaunchHostFunc(
            stream.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &has_run),
        "cudaLaunchHostFunc");
    std::size_t const before = emulated::waits;
    zero::detail::drain<cuda::Backend>(stream.get());
    CHECK(has_run);
    CHECK(emulated::waits == before + 1);
}

TEST_CASE(
    "Querying an incomplete event neither leaves a thread error behind nor clears the caller's",
    "[cuda]") {
    cuda::OwnedStream const stream;
    std::atomic<bool> may_go_on{false};
    auto const wait = [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) {
            std::this_thread::yield();
        }
    };
    cuda::detail::check(cudaLaunchHostFunc(stream.get(), wait, &may_go_on), "cudaLaunchHostFunc");
    cuda::Event const event = cuda::Event::record(stream.get());
    CHECK_FALSE(event.is_complete());
    CHECK(cudaGetLastError() == cudaSuccess);
    emulated::last_error = cudaErrorMemoryAllocation;
    CHECK_FALSE(event.is_complete());
    CHECK(cudaGetLastError() != cudaSuccess);
    may_go_on = true;
    event.synchronise();
    CHECK(event.is_complete());
}

} // namespace zero::test::enqueue_only_test
