#include "cuda/captured_steps.cuh"

#include "support/outcome.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"

#include <zero/cuda/virtual_memory.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/update_on_host.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

// The states of an engine on a device leave its memory between two steps, for its host or for a
// file, and no bit of a result depends on it.

namespace zero::test::device_offload_states_test {

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;
using Kinds = std::vector<BufferKind>;

Kinds const all_kinds{BufferKind::parameters,      BufferKind::gradients,
                      BufferKind::master_weights,  BufferKind::optimizer_state,
                      BufferKind::gradient_leases, BufferKind::parameter_leases};

/// Returns layers whose states are some pages of the device each.
/// @param share of the elements
std::vector<ParameterSpec> layers(std::size_t share = 1) {
    std::size_t const page = cuda::VirtualMemory().page_bytes() / share;
    return {{"a", 3 * page / 2, {0}, 0}, {"b", page + 1, {1}, 1}, {"c", 41, {2}, 1}};
}

/// Whether a page has so many bytes, as that of a GPU, that a test must move fewer of them.
bool has_large_pages() {
    return cuda::VirtualMemory().page_bytes() > std::size_t{1} << 16U;
}

std::size_t resident(cuda::VirtualMemory const& memory, Kinds const& kinds = all_kinds) {
    std::size_t bytes = 0;
    for (BufferKind const kind : kinds) {
        bytes += memory.resident_bytes(kind);
    }
    return bytes;
}

/// Trains six steps, of which the third overflows and the last three may be one captured graph.
/// Parks between steps as `seed` says; 0: never.
template <class Stage>
std::vector<Trained> history(int world, std::uint64_t seed, bool captures = false) {
    TemporaryFolder const folder;
    std::vector<ParameterSpec> const specs = layers(has_large_pages() ? 3 : 1);
    GroupGraph graph(world);
    auto const ranks =
        on_ranks<std::vector<Trained>, DeviceLoopback>(world, [&](auto& communicator) {
            auto const rank = static_cast<std::size_t>(communicator.rank());
            cuda::OwnedStream const stream;
            StreamScope const scope(stream.get()); // a wait for all would end a capture
            cuda::VirtualMemory memory;
            DeviceArray<int> const is_overflow(1);
            typename Stage::Options options;
            options.compute_queue = stream.get();
            options.memory = &memory;
            options.groups.resize(2);
            options.groups[1].learning_rate_factor = 0.5;
            options.reduction.schedule = ReductionSchedule::boundary;
            Stage engine(communicator, registration<typename Stage::ParameterType>(specs), options);
            std::mt19937_64 random(seed + rank); // not collective: each rank does something else
            auto const some = [&] {
                Kinds kinds;
                for (BufferKind const kind : all_kinds) {
                    if (random() % 2 == 0) {
                        kinds.push_back(kind);
                    }
                }
                return kinds; // none: all
            };
            auto const park = [&] {
                for (std::uint64_t call = seed == 0 ? 0 : 1 + random() % 3; call > 0; --call) {
                    OffloadStatesOptions moved{.blocking = random() % 2 == 0,
                                               .chunk_bytes = 4096 + random() % 2'000'000,
                                               .allow_page_cache = true};
                    if (random() % 2 == 0) {
                        moved.path = folder.path();
                    }
                    offload_states(engine, some(), moved);
                }
                if (seed != 0 && random() % 2 == 0) {
                    reload_states(engine, {.kinds = some(), .blocking = random() % 2 == 0});
                }
                reload_states(engine, {.blocking = random() % 2 == 0});
                if (seed != 0) { // waits; a graph does not
                    (void)engine.step_count();
                    reload_states(engine);
                }
            };
            auto const enqueue_step = [&](std::uint64_t step) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(2)) {
                    run_device_micro_step(
                        engine, stream.get(), rank, step, micro_step, 4, [&](auto gradient) {
                            cuda::detail::launch(stream.get(), 1, 1,
                                                 perhaps_overflow<typename Stage::GradientType>,
                                                 gradient.data(), is_overflow.data());
                        });
                }
                return engine.step(0.01);
            };
            std::vector<Trained> seen;
            park();
            for (std::uint64_t step = 0; step < 6; ++step) {
                cuda::detail::check(cudaMemsetAsync(is_overflow.data(), step == 2 ? 1 : 0,
                                                    sizeof(int), stream.get()),
                                    "cudaMemsetAsync");
                if (step < 3 || !captures) {
                    (void)enqueue_step(step < 3 ? step : 3);
                } else {
                    engine.join();
                    if (step == 3) {
                        graph.capture(rank, stream.get(), [&] {
                            (void)enqueue_step(3);
                            engine.join();
                        });
                    }
                    graph.launch(rank, stream.get());
                    engine.join();
                }
                park(); // while the step is under way
                if (step >= 2) {
                    collect(engine, specs, seen.emplace_back());
                }
            }
            cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
            return seen;
        });
    std::vector<Trained> all;
    for (std::size_t step = 0; step < ranks[0].size(); ++step) {
        std::vector<Trained> of_step;
        for (auto const& rank : ranks) {
            of_step.push_back(rank[step]);
        }
        all.push_back(merged(of_step));
    }
    return all;
}

template <class Stage>
void compare() {
    bool const is_short = has_large_pages();
    for (int const world : is_short ? std::vector{2} : std::vector{1, 2}) {
        auto const expected = history<Stage>(world, 0);
        CHECK(!(expected[0] == expected[1]));
        for (std::uint64_t const seed : is_short ? std::vector{11U} : std::vector{11U, 12U}) {
            CAPTURE(world, seed);
            CHECK((history<Stage>(world, seed) == expected)); // too long to print
        }
        CAPTURE(world);
        CHECK((history<Stage>(world, 13, true) == expected));
    }
}

} // namespace

TEST_CASE("A block of device memory gives back its pages, keeps its address, and can be used again",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    constexpr auto kind = BufferKind::optimizer_state;
    cuda::VirtualMemory memory;
    cuda::RuntimeBackend::Copier const copy;
    CHECK(memory.can_give_back_pages());
    std::size_t const page = memory.page_bytes();
    for (std::size_t const bytes : {std::size_t{1}, page - 1, page, page + 1, 3 * page}) {
        CAPTURE(bytes);
        std::size_t const pages = bytes < page ? 0 : (bytes + page - 1) / page * page;
        std::vector<std::byte> values(bytes, std::byte{0x5a});
        std::vector<std::byte> read(bytes);
        void* const block = memory.allocate(bytes, kind);
        CHECK(memory.resident_bytes(kind) == pages);
        CHECK((pages == 0 || reinterpret_cast<std::uintptr_t>(block) % page == 0));
        for (int turn = 0; turn < 2; ++turn) {
            copy(block, values.data(), bytes);
            REQUIRE(memory.give_back_pages(block, bytes, kind));
            CHECK(memory.resident_bytes(kind) == 0);
            memory.take_pages_again(block, bytes, kind);
            CHECK(memory.resident_bytes(kind) == pages);
            copy(block, values.data(), bytes);
            copy(read.data(), block, bytes);
            CHECK(read == values);
        }
        memory.deallocate(block, bytes, kind);
        CHECK(memory.resident_bytes(kind) == 0);
    }
}

TEST_CASE("Each kind of a device's engine alone gives back its memory and nothing else, keeps its "
          "addresses, and is where it is said to be",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        auto const outcomes = run_and_observe<DeviceLoopback>(1, [&](auto& communicator) {
            TemporaryFolder const folder;
            cuda::OwnedStream const stream;
            cuda::VirtualMemory memory;
            typename ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, DeviceLoopback>::Options
                options;
            options.compute_queue = stream.get();
            options.memory = &memory;
            options.groups.resize(2);
            ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, DeviceLoopback> engine(
                communicator, registration<bfloat16>(layers()), options);
            auto const slices = [&] {
                std::vector<void const*> addresses;
                engine.for_each_owned_slice(
                    [&](auto const& slice) { addresses.push_back(slice.values.data()); });
                return addresses;
            };
            auto const free_bytes = [] { // of the device
                std::size_t free = 0;
                std::size_t total = 0;
                cuda::detail::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
                return free;
            };
            auto const addresses = slices();
            std::size_t const all = resident(memory);
            CHECK(all > 10 * memory.page_bytes());
            for (bool const is_file : {false, true}) { // streams take memory of the device for good
                OffloadStatesOptions moved{.allow_page_cache = true};
                if (is_file) {
                    moved.path = folder.path();
                }
                offload_states(engine, {}, moved);
                reload_states(engine);
            }
            std::size_t empty = 0;
            for (BufferKind const kind : all_kinds) {
                for (bool const is_file : {false, true}) {
                    CAPTURE(std::string(name_of(kind)), is_file);
                    std::size_t const own = memory.resident_bytes(kind);
                    std::size_t const before = free_bytes();
                    auto const here = where(engine, kind);
                    CHECK((own == 0 || here == StatesPlace::memory));
                    OffloadStatesOptions moved{.allow_page_cache = true};
                    if (is_file) {
                        moved.path = folder.path();
                    }
                    offload_states(engine, {kind}, moved);
                    CHECK(where(engine, kind)
                          == (here == StatesPlace::nowhere ? StatesPlace::nowhere
                              : is_file                    ? StatesPlace::file
                                                           : StatesPlace::host_memory));
                    CHECK(memory.resident_bytes(kind) == 0);
                    CHECK(resident(memory) == all - own);
                    CHECK(free_bytes() >= before + own);
                    reload_states(engine);
                    CHECK(where(engine, kind) == here);
                    CHECK(memory.resident_bytes(kind) == own);
                    empty += own == 0 ? 1 : 0;
                }
            }
            CHECK(empty <= 2 * 2);
            offload_states(engine);
            CHECK(resident(memory) == 0);
            auto const refused = outcome_of([&] { engine.begin_step(); });
            CHECK(refused.type == "OutOfOrder");
            CHECK_THAT(refused.message, contains_text("call reload_states(engine) first."));
            reload_states(engine);
            CHECK(resident(memory) == all);
            CHECK(slices() == addresses);
        });
        CHECK(outcomes.ranks[0].message.empty());
    });
}

TEST_CASE("Any kinds of a device's engine in any order, twice in a row, before the first step and "
          "after a skipped one, change no bit, and captured steps stay valid",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        compare<ZeroStage<N, Parameters<float16>, SizeCappedBucketer, DeviceLoopback>>();
        compare<ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, DeviceLoopback,
                          DynamicLossScaler, SplitMasterWeights, BlockScaledState<float16>>>();
    });
}

TEST_CASE("States that a policy keeps in memory of the host stay there, and the rest leaves",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using States = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
    compare<ZeroStage<2, Parameters<float16>, DeviceLoopback, Offload<States>>>();
    auto const outcomes = run_and_observe<DeviceLoopback>(1, [&](auto& communicator) {
        using Stage = ZeroStage<2, Parameters<float16>, DeviceLoopback, Offload<States>>;
        cuda::OwnedStream const stream;
        cuda::VirtualMemory memory;
        typename Stage::Options options;
        options.compute_queue = stream.get();
        options.memory = &memory;
        options.groups.resize(2);
        Stage engine(communicator, registration<float16>(layers()), options);
        CHECK(where(engine, BufferKind::optimizer_state) == StatesPlace::host_memory);
        CHECK(where(engine, BufferKind::gradients) == StatesPlace::memory);
        offload_states(engine);
        CHECK(where(engine, BufferKind::optimizer_state) == StatesPlace::host_memory);
        CHECK(where(engine, BufferKind::gradients) == StatesPlace::host_memory);
        CHECK(resident(memory) == 0);
    });
    CHECK(outcomes.ranks[0].message.empty());
}

TEST_CASE("A device's memory that cannot be given back is refused with the resource that can",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const outcomes = run_and_observe<DeviceLoopback>(1, [&](auto& communicator) {
        using Stage = ZeroStage<1, DeviceLoopback>;
        cuda::OwnedStream const stream;
        Stage::Options options;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<float>(toy_specs()), options);
        offload_states(engine);
    });
    CHECK(outcomes.ranks[0].type == "InvalidArgument");
    CHECK_THAT(
        outcomes.ranks[0].message,
        contains_text("rank 0: offload_states() needs a memory resource that can give back "
                      "pages, and that of this engine cannot. Set options.memory to a "
                      "zero::cuda::VirtualMemory, not behind a "
                      "zero::cuda::NcclMemoryResource, whose memory NCCL keeps. A resource"));
}

} // namespace zero::test::device_offload_states_test
