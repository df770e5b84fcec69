#define EIGEN_NO_CUDA // Eigen multiplies on the host alone, whichever compiler this is

#include "cuda/device.hpp"
#include "emulated_nccl.hpp"

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <gpt/host_device.hpp>
#include <gpt/trainer.hpp>

#include <zero/cuda/backend.cuh>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// The model and the trainer of train_gpt, whose engines are on devices over an NCCL that adds in
// its own order. The model computes on the host, as over the loopback, because the kernels of
// cuda_train_gpt have other bits.

namespace zero::test::nccl_gpt_test {

namespace {

/// Computes on the host with weights and gradients that lie on a device.
class HostDeviceOnStream : public gpt::HostDevice<float> {
public:
    using Scale = float const*;

    explicit HostDeviceOnStream(cudaStream_t stream) : _stream(stream) {}

    [[nodiscard]] cudaStream_t stream() const noexcept { return _stream; }
    template <class LossScale>
    static Scale scale_of(LossScale const& scale) noexcept {
        return scale.data();
    }
    template <class T>
    static void load(std::span<T const> from, float* to) {
        auto const values = test::on_host(from);
        gpt::load(std::span<T const>(values), to);
    }
    template <class T>
    void add_to(std::span<T> to, float const* from) const {
        auto values = test::on_host(to);
        gpt::add_to(std::span<T>(values), from);
        cuda::detail::check(cudaMemcpyAsync(to.data(), values.data(), to.size_bytes(),
                                            cudaMemcpyHostToDevice, _stream),
                            "cudaMemcpyAsync");
        cuda::detail::check(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
    }
    static void cross_entropy_backward(gpt::View<float> probabilities,
                                       std::span<std::uint8_t const> targets, Scale scale) {
        gpt::HostDevice<float>::cross_entropy_backward(
            probabilities, targets, test::on_host(std::span<float const>(scale, 1)).front());
    }

private:
    cudaStream_t _stream;
};

/// The options of `same_bits.sh`.
gpt::Settings settings_of(int world, bool in_tree) {
    gpt::Settings settings;
    settings.world = world;
    settings.schedule = "every-micro-step"; // as with a tree
    settings.bucket_bytes = 4096;
    settings.micro_batches = 8;
    settings.in_rank_order = !in_tree;
    settings.steps = 3;
    settings.layers = 1;
    settings.width = 16;
    settings.context = 8;
    settings.batch = 1;
    settings.share_micro_batches();
    return settings;
}

/// Trains this rank and returns the hash that train_gpt prints.
template <class Stage, class Device>
std::uint64_t hash_of_rank(typename Stage::Communicator& communicator,
                           gpt::Settings const& settings, typename Stage::Options const& options,
                           Device device) {
    auto const config = gpt::make_config(settings.layers, settings.width, settings.context);
    auto const model = gpt::parameters_of(config);
    gpt::Text const text(gpt::read_files(std::vector{std::string(ZERO_SOURCE_DIR "/README.md")}),
                         config.context);
    Stage engine(communicator,
                 gpt::registration<typename Stage::ParameterType>(model, settings.seed), options);
    gpt::Trainer<typename Stage::EngineType, Device> trainer(
        engine, std::move(device), static_cast<std::size_t>(communicator.rank()),
        static_cast<std::size_t>(communicator.size()), config, settings, text);
    for (std::size_t step = 0; step < settings.steps; ++step) {
        trainer.step(step, gpt::learning_rate_at(step, settings));
    }
    std::uint64_t hash = 0xcbf29ce484222325U;
    engine.for_each_full_parameter([&](std::size_t, auto values) {
        if constexpr (std::is_same_v<Device, HostDeviceOnStream>) {
            auto const copy = test::on_host(values);
            hash = gpt::hash_bits(hash, std::span(copy));
        } else {
            hash = gpt::hash_bits(hash, values);
        }
    });
    return hash;
}

template <class T, bool in_tree, class... Policies>
struct Composition {
    template <int N>
    using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, Policies...>;
};
template <class T, class... Policies>
struct Composition<T, true, Policies...> {
    template <int N>
    using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, TreeReduction<>, Policies...>;
};

/// Returns the hash of threads on the host.
template <class T, bool in_tree>
std::uint64_t on_loopback(int world) {
    using Stage = typename Composition<T, in_tree>::template Stage<2>;
    auto const settings = settings_of(world, in_tree);
    return on_ranks<std::uint64_t>(world, [&](LoopbackCommunicator& communicator) {
        return hash_of_rank<Stage>(communicator, settings, gpt::engine_options<Stage>(settings),
                                   gpt::HostDevice<float>());
    })[0];
}

/// Returns the hash of devices over the fake NCCL, which is the same on every rank, or 0.
template <int N, class T, bool in_tree>
std::uint64_t over_nccl(int world, cuda::NcclOrder order) {
    using Nccl = FakeNcclCommunicator<cuda::NcclMode::blocking, cuda::Backend, EmulatedWorld>;
    using Stage = typename Composition<T, in_tree, Nccl>::template Stage<N>;
    auto const settings = settings_of(world, in_tree);
    FakeSumsScope const sums({order, static_cast<std::size_t>(world) * 1024, true}); // in rounds
    std::vector<std::uint64_t> hashes(static_cast<std::size_t>(world));
    run_nccl_ranks<Nccl>(world, [&](Nccl& communicator) {
        cuda::detail::check(cudaSetDevice(communicator.rank()), "cudaSetDevice");
        cuda::OwnedStream const stream;
        StreamScope const scope(stream.get());
        auto options = gpt::engine_options<Stage>(settings);
        options.compute_queue = stream.get();
        hashes[static_cast<std::size_t>(communicator.rank())] =
            hash_of_rank<Stage>(communicator, settings, options, HostDeviceOnStream(stream.get()));
    });
    for (std::uint64_t const hash : hashes) {
        if (hash != hashes[0]) {
            return 0;
        }
    }
    return hashes[0];
}

} // namespace

TEMPLATE_TEST_CASE(
    "Over NCCL in rank order train_gpt has the hash of the loopback in every stage, and in "
    "NCCL's own order another",
    "[cuda]", float, bfloat16, float16) {
    for (int const world : {1, 2, 4}) {
        auto const expected = on_loopback<TestType, false>(world);
        in_every_stage([&]<int N>() {
            CAPTURE(N, world);
            CHECK(over_nccl<N, TestType, false>(world, cuda::NcclOrder::rank) == expected);
            if (world == 4) { // a sum of two has one order
                CHECK(over_nccl<N, TestType, false>(world, cuda::NcclOrder::library) != expected);
            }
        });
    }
}

TEMPLATE_TEST_CASE(
    "Over NCCL in rank order train_gpt with a tree of micro-batches has one hash on every "
    "number of ranks, that of the loopback, in every stage",
    "[cuda]", float, bfloat16, float16) {
    auto const expected = on_loopback<TestType, true>(1);
    CHECK(expected != on_loopback<TestType, false>(4));
    for (int const world : {1, 2, 4}) {
        in_every_stage([&]<int N>() {
            CAPTURE(N, world);
            CHECK(over_nccl<N, TestType, true>(world, cuda::NcclOrder::rank) == expected);
        });
    }
}

} // namespace zero::test::nccl_gpt_test
