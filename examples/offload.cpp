// Two ranks train a small model whose master weights and optimizer states lie in files, and compare
// its weights with those of a model in memory, bit for bit. That one lends its memory to something
// else after each step. Gradients do not depend on weights here, so delayed updates end there too.

#include <zero/stage/offload.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

namespace {

using InMemory = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>>;
using States =
    zero::To<zero::FileTier, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>;
using InFiles = InMemory::with<zero::Offload<States>>;
using Late = InMemory::with<zero::Offload<States, zero::DelayedUpdate>>;

/// Gives the memory of an engine to something else for a while.
template <class Zero>
void lend_memory(Zero& engine) {
    auto const folder = std::filesystem::temp_directory_path();
    zero::offload_states(engine, {.path = folder, .allow_page_cache = true});
    // a model generates text here
    zero::reload_states(engine);
}

/// Returns the weights after some steps.
template <class Zero>
std::vector<zero::bfloat16> train(zero::LoopbackCommunicator& communicator,
                                  typename Zero::Options const& options, bool lends_memory) {
    constexpr std::size_t elements = 100'000;
    Zero engine(communicator, {{.name = "weight", .elements = elements}}, options);
    for (std::size_t step = 0; step < 5; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            auto const gradients = engine.gradients(0);
            for (std::size_t i = 0; i < elements; ++i) {
                auto const value = static_cast<float>((i + step + micro_step) % 17) - 8.0F;
                gradients[0][i] = zero::from_float<zero::bfloat16>(value);
            }
            engine.gradients_ready(0);
        }
        engine.step(0.01);
        if (lends_memory) {
            lend_memory(engine);
        }
    }
    engine.settle(); // for a delayed update
    auto const weights = engine.acquire(0);
    (void)engine.last_report(); // waits, and reports failures
    return {weights[0].begin(), weights[0].end()};
}

} // namespace

int main() {
    int differences = 0;
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        InFiles::Options options;
        options.offload.path = std::filesystem::temp_directory_path();
        options.offload.chunk_bytes = 100'000;   // 12 MiB without this line
        options.offload.allow_page_cache = true; // a temporary folder may have no direct access
        auto const found = train<InFiles>(communicator, options, false);
        auto const late = train<Late>(communicator, {.offload = options.offload}, false);
        auto const expected = train<InMemory>(communicator, {}, true);
        if (communicator.rank() == 0) {
            for (auto const* weights : {&found, &late}) {
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    auto const& weight = (*weights)[i];
                    differences += std::memcmp(&weight, &expected[i], sizeof(weight)) != 0 ? 1 : 0;
                }
            }
        }
    });
    std::printf("%d weights differ\n", differences);
    return differences == 0 ? 0 : 1;
}
