#include "cuda/device_model.cuh"
#include "cuda/scripted_nccl.hpp"

#include "support/outcome.hpp"
#include "support/stages.hpp"

#include <functional>
#include <string>
#include <vector>

// Several devices, which only the emulated runtime can stand for: what belongs to another device
// than the current one of the rank's thread is refused before a kernel uses it.

namespace zero::test::devices_test {

namespace {

using Stage = ZeroStage<2, Parameters<bfloat16>, Loopback<cuda::Backend>>;

/// Makes a device current for a scope.
struct Using {
    explicit Using(int device) { cuda::detail::check(cudaSetDevice(device), "cudaSetDevice"); }
    Using(Using const&) = delete;
    ~Using() { cuda::detail::ignore(cudaSetDevice(0)); }
};

/// Makes an engine on device 0, after `change` has changed its arguments, and returns the error.
std::string
error_of(std::function<void(std::vector<Parameter<bfloat16>>&, Stage::Options&)> const& change) {
    auto const outcomes =
        run_and_observe<Stage::Communicator>(1, [&](Stage::Communicator& communicator) {
            Using const current(0);
            cuda::OwnedStream const stream;
            std::vector<Parameter<bfloat16>> parameters{{.name = "layer.weight", .elements = 500}};
            Stage::Options options;
            options.compute_queue = stream.get();
            change(parameters, options);
            Stage const engine(communicator, parameters, options);
        });
    return outcomes.ranks[0].type + ' ' + outcomes.ranks[0].message;
}

} // namespace

TEST_CASE("Memory of another device is refused, naming both devices, unless peer access is on",
          "[cuda]") {
    Using const other(1);
    DeviceArray<bfloat16> const memory(510);
    for (bool const are_values : {false, true}) {
        auto const give_memory = [&](auto& parameters, auto& options) {
            (are_values ? parameters[0].data : parameters[0].gradient) = memory.data() + 10;
            options.storage = are_values ? Storage::scattered : Storage::owned;
        };
        std::string const message = error_of(give_memory);
        CAPTURE(message);
        CHECK_THAT(message, contains_text("InvalidArgument zero: the memory for the "));
        CHECK_THAT(message, contains_text("of parameter 'layer.weight' is memory of CUDA device 1, "
                                          "which kernels on the current device of this thread, "
                                          "device 0, cannot use; call cudaSetDevice(1)"));
        Using const first(0);
        cuda::detail::check(cudaDeviceEnablePeerAccess(1, 0), "cudaDeviceEnablePeerAccess");
        CHECK(error_of(give_memory) == "returned ");
        cuda::detail::check(cudaDeviceDisablePeerAccess(1), "cudaDeviceDisablePeerAccess");
    }
}

TEST_CASE("Memory that every device can use is accepted whichever device is current", "[cuda]") {
    Using const other(1);
    cuda::PinnedMemory pinned;
    void* const memory = pinned.allocate(1000, BufferKind::scratch);
    CHECK(error_of([&](auto& parameters, auto&) {
              parameters[0].gradient = static_cast<bfloat16*>(memory);
          })
          == "returned ");
    pinned.deallocate(memory, 1000, BufferKind::scratch);
}

TEST_CASE("A stream of another device is refused, naming both devices, as the compute queue, the "
          "communication queue and a reader's queue",
          "[cuda]") {
    Using const other(1);
    cuda::OwnedStream const foreign;
    std::string const expected =
        "InvalidArgument zero: a stream of CUDA device 1 is used by a thread whose current device "
        "is 0; call cudaSetDevice(1)";
    CHECK_THAT(error_of([&](auto&, auto& options) { options.compute_queue = foreign.get(); }),
               contains_text(expected));
    CHECK_THAT(error_of([&](auto&, auto& options) { options.communication_queue = foreign.get(); }),
               contains_text(expected));
    CHECK(error_of([&](auto&, auto& options) { options.compute_queue = cudaStreamPerThread; })
          == "returned ");
    Using const first(0);
    CHECK_THROWS_AS(cuda::RuntimeBackend::require_queue(foreign.get()), InvalidArgument);
    CHECK_THROWS_AS(cuda::RuntimeBackend::require_queue(cuda::unset_stream()), InvalidArgument);
}

TEST_CASE("Ranks of a Loopback on several devices are refused on every rank, naming ranks and "
          "devices, unless peer access is on",
          "[cuda]") {
    auto const train = [](bool gives_access) {
        return run_and_observe<Stage::Communicator>(2, [&](Stage::Communicator& communicator) {
            Using const current(communicator.rank());
            if (gives_access) {
                cuda::detail::check(cudaDeviceEnablePeerAccess(1 - communicator.rank(), 0),
                                    "cudaDeviceEnablePeerAccess");
            }
            {
                cuda::OwnedStream const stream;
                Stage::Options options;
                options.compute_queue = stream.get();
                Stage engine(communicator,
                             std::vector<Parameter<bfloat16>>{{.name = "a", .elements = 500}},
                             options);
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    auto const weights = engine.acquire(0);
                    (void)engine.gradients(0)[0]; // zeros
                    engine.gradients_ready(0);
                }
                (void)engine.step(1.0);
                (void)engine.step_count();
            }
            if (gives_access) {
                cuda::detail::ignore(cudaDeviceDisablePeerAccess(1 - communicator.rank()));
            }
        });
    };
    auto const refused = train(false);
    for (std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
        std::string const own = std::to_string(rank);
        std::string const other = std::to_string(1 - rank);
        CAPTURE(refused.ranks[rank].message);
        CHECK(refused.ranks[rank].type == "InvalidArgument");
        CHECK_THAT(refused.ranks[rank].message,
                   contains_text("zero: Loopback: rank " + own + " cannot read what rank " + other
                                 + " sends, which is memory of CUDA device " + other
                                 + ", which kernels on the current device of this thread, device "
                                 + own + ", cannot use"));
        CHECK_THAT(refused.ranks[rank].message,
                   contains_text("enable peer access, or use NCCL (NcclCommunicator)"));
    }
    for (auto const& outcome : train(true).ranks) {
        CHECK(outcome.type + ' ' + outcome.message == "returned ");
    }
}

TEST_CASE("A thread that uses a communicator of another device than its current one is refused",
          "[cuda]") {
    Script script;
    script.nccl.rank = 0;
    script.nccl.world = 2;
    auto ranks = cuda::BasicNcclCommunicator<cuda::Backend>::make_group(
        script.interfaces(), std::vector<int>{0, 1}, script.options);
    float value = 0.0F;
    auto const send = [&](int rank) {
        return outcome_of([&] {
            ranks[static_cast<std::size_t>(rank)].broadcast(&value, 1, 0, cudaStreamPerThread);
        });
    };
    CHECK(send(0).type == "returned");
    CHECK_THAT(send(1).message,
               contains_text("a communicator of CUDA device 1 is used by a thread whose current "
                             "device is 0; call cudaSetDevice(1)"));
    Using const other(1);
    CHECK(send(1).type == "returned");
}

} // namespace zero::test::devices_test
