#include "checkpoint/engine_model.hpp"
#include "checkpoint/slow_load.hpp"
#include "cuda/device_model.cuh"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/update_on_host.hpp>

#include <filesystem>
#include <optional>

// Checkpoints of engines on a device. Host and device read each other's checkpoints, and both
// continue with the same bits.

namespace zero::test::device_checkpoint_test {

namespace {

using namespace engine_model;

using DeviceLoopback = Loopback<cuda::Backend>;

enum class Save { none, at_once, in_background };

/// Trains the steps [begin, end) on the host or a device, after loading unless `begin` is 0.
/// Returns the state that all ranks hold then.
template <class Stage>
Bits run(int world, std::filesystem::path const& folder, std::uint64_t begin, std::uint64_t end,
         Save save = Save::none) {
    constexpr bool is_on_device = std::is_same_v<typename Stage::Communicator, DeviceLoopback>;
    auto const ranks = on_ranks<Bits, typename Stage::Communicator>(world, [&](auto& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        std::optional<cuda::OwnedStream> stream;
        auto options = same_schedule<Stage>();
        if constexpr (is_on_device) {
            options.compute_queue = stream.emplace().get();
        }
        if constexpr (zero::detail::config_of_t<Stage>::Offload::is_any) {
            options.offload.path = folder;
            options.offload.chunk_bytes = 1500;
            options.offload.allow_page_cache = true;
        }
        Toy<Stage> toy(communicator, options);
        auto& engine = *toy.engine;
        if (begin != 0) {
            load_checkpoint(engine, folder);
        }
        for (std::uint64_t step = begin; step < end; ++step) {
            if constexpr (is_on_device) {
                (void)run_device_step(engine, stream->get(), rank, step, 2, 0.01, 8);
            } else {
                (void)run_step(engine, rank, step, 2, 0.01, 8, {});
            }
        }
        if (save == Save::at_once) {
            save_checkpoint(engine, folder);
        } else if (save == Save::in_background) {
            CheckpointSaver saver(engine, folder);
            saver.start();
            saver.wait();
        }
        return state_of(engine);
    });
    for (Bits const& own : ranks) {
        CHECK(own == ranks[0]);
    }
    return ranks[0];
}

/// Trains four steps with a checkpoint after two, between any of two engines on the host and two on
/// a device, which differ in stage and partitioner.
template <class... Policies>
void check_forms() {
    using Host = ZeroStage<1, Policies...>;
    using OtherHost = ZeroStage<3, Policies..., RoundRobinPartitioner>;
    using Device = ZeroStage<2, Policies..., DeviceLoopback>;
    using OtherDevice = ZeroStage<3, Policies..., RoundRobinPartitioner, DeviceLoopback>;
    TemporaryFolder const device;
    TemporaryFolder const host;
    Bits const saved = run<Device>(3, device.path(), 0, 2, Save::at_once);
    CHECK(run<Host>(3, host.path(), 0, 2, Save::at_once) == saved);

    Bits const expected = run<Host>(3, host.path(), 0, 4);
    CHECK(expected != saved);
    CHECK(run<Device>(3, device.path(), 0, 4) == expected);
    CHECK(run<OtherDevice>(3, device.path(), 2, 4) == expected);
    CHECK(run<OtherHost>(3, device.path(), 2, 4) == expected);
    CHECK(run<OtherDevice>(3, host.path(), 2, 4) == expected);
    // Another number of ranks loads the same state.
    CHECK(run<OtherDevice>(4, host.path(), 2, 2) == saved);
}

} // namespace

TEST_CASE("Device and host load each other's checkpoints and go on with the same bits", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_forms<Parameters<bfloat16>>();
}

TEST_CASE("Split master weights and scaled states of a device are loaded on the host, and back",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_forms<Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>();
    check_forms<Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<power8>>();
}

TEST_CASE(
    "Engines whose states lie on the device, in memory of the host beside it, on the host and in "
    "files load each other's checkpoints and go on with the same bits",
    "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using States = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
    using Device = ZeroStage<2, Parameters<bfloat16>, DeviceLoopback>;
    using OnHost = ZeroStage<1, Parameters<bfloat16>, DeviceLoopback, Offload<States>>;
    using All = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights,
                   BufferKind::parameters>;
    using OtherOnHost =
        ZeroStage<3, Parameters<bfloat16>, DeviceLoopback, Offload<All, UpdateOnDevice>>;
    TemporaryFolder const device;
    TemporaryFolder const host;
    Bits const saved = run<Device>(3, device.path(), 0, 2, Save::at_once);
    CHECK(run<OnHost>(3, host.path(), 0, 2, Save::in_background) == saved);

    Bits const expected = run<ZeroStage<1, Parameters<bfloat16>>>(3, host.path(), 0, 4);
    CHECK(run<OnHost>(3, device.path(), 0, 4) == expected);
    CHECK(run<OtherOnHost>(3, device.path(), 2, 4) == expected);
    CHECK(run<OtherOnHost>(3, host.path(), 2, 4) == expected);
    CHECK(run<Device>(3, host.path(), 2, 4) == expected);
    CHECK(run<OnHost>(4, host.path(), 2, 2) == saved);

    using InFiles =
        ZeroStage<2, Parameters<bfloat16>,
                  Offload<To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>>>;
    TemporaryFolder const files;
    CHECK(run<InFiles>(2, host.path(), 2, 4) == run<OnHost>(2, host.path(), 2, 4));
    CHECK(run<InFiles>(3, files.path(), 0, 2, Save::at_once) == saved);
    CHECK(run<OnHost>(3, files.path(), 2, 4) == expected);
    CHECK(run<OtherOnHost>(3, files.path(), 2, 4) == expected);
}

TEST_CASE("A checkpoint of a device that is written in the background holds the state of its start",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Device = ZeroStage<3, DeviceLoopback>;
    TemporaryFolder const folder;
    Bits const saved = run<Device>(2, folder.path(), 0, 2, Save::in_background);
    CHECK(run<ZeroStage<0>>(2, folder.path(), 2, 2) == saved);
}

TEST_CASE("A load into a device ends on every rank when one needs longer than file_time_out",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = ZeroStage<2, DeviceLoopback>;
    auto const outcomes = load_slowly<DeviceLoopback>([](auto& communicator, auto const& use) {
        cuda::OwnedStream const stream;
        auto options = same_schedule<Stage>();
        options.compute_queue = stream.get();
        Toy<Stage> toy(communicator, options);
        use(*toy.engine);
    });
    for (Outcome const& outcome : outcomes) {
        CHECK_THAT(outcome.message,
                   contains_text("rank 1 did not load the checkpoint within 500 ms")
                       && contains_text("file_time_out"));
    }
}

} // namespace zero::test::device_checkpoint_test
