#include "checkpoint/engine_model.hpp"
#include "cuda/device_model.cuh"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>

// Only the emulated device counts page-locked memory.

namespace zero::test::checkpoint_memory_test {

namespace {

using namespace engine_model;

/// Saves or loads, and returns the largest page-locked memory that this took beside the reports of
/// the engine.
template <class Call>
std::size_t page_locked_by(Call const& call) {
    std::size_t const reports = emulated::page_locked_bytes;
    CHECK(reports <= 4096);
    emulated::page_locked_peak = 0;
    call();
    CHECK(emulated::page_locked_bytes == reports);
    return emulated::page_locked_peak - reports;
}

/// Makes a device current for the calling thread, as a rank does that does not use the first one.
struct CurrentDevice {
    explicit CurrentDevice(int device) { cuda::detail::check(cudaSetDevice(device), "set"); }
    ~CurrentDevice() { cuda::detail::ignore(cudaSetDevice(0)); }
};

} // namespace

TEST_CASE("Each rank saves and loads a device's state through one page-locked buffer of 4 MiB",
          "[cuda]") {
    using Stage = ZeroStage<2, Loopback<cuda::Backend>>;
    TemporaryFolder const folder;
    auto const peaks = on_ranks<std::array<std::size_t, 2>, Stage::Communicator>(
        2, [&](auto& communicator) -> std::array<std::size_t, 2> {
            CurrentDevice const current(1); // a thread of the library would have another one
            cuda::OwnedStream const stream;
            auto options = same_schedule<Stage>();
            options.compute_queue = stream.get();
            Toy<Stage> toy(communicator, options);
            return {page_locked_by([&] { save_checkpoint(*toy.engine, folder.path()); }),
                    page_locked_by([&] { load_checkpoint(*toy.engine, folder.path()); })};
        });
    for (auto const& [saving, loading] : peaks) {
        CHECK(saving == std::size_t{4} << 20U);
        CHECK(loading == std::size_t{4} << 20U);
    }
}

} // namespace zero::test::checkpoint_memory_test
