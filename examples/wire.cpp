// Four ranks over a slow link, in stage 3: weights travel in 8 bits, which is half of the bytes of
// the gathers, and the shards keep every bit. All ranks read the same weights. Then all units but
// the last are frozen, and lie in 8 bits as well.

#include <zero/stage/wire.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using Plain = zero::ZeroStage<3, zero::AdamW, zero::Parameters<zero::bfloat16>>;
using Zero =
    zero::ZeroStage<3, zero::AdamW, zero::Parameters<zero::bfloat16>, zero::Wire<zero::Int8Blocks>>;
using Adapters = zero::ZeroStage<3, zero::AdamW, zero::Parameters<zero::bfloat16>,
                                 zero::FrozenWeights<zero::Int8Blocks>>;

namespace {

constexpr int ranks = 4;
constexpr std::size_t elements = 4096, units = 3, steps = 40;

/// Learns zeros: the gradient of a weight is the weight itself, as it was read.
template <class Engine>
void train(Engine& engine) {
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
            for (std::size_t unit = 0; unit < units; ++unit) { // forward
                auto const weights = engine.acquire(unit);
            }
            for (std::size_t unit = units; unit-- > 0;) { // backward
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                auto const weight = weights[unit];
                auto const gradient = gradients[unit];
                for (std::size_t i = 0; i < gradient.size(); ++i) { // of a frozen one empty
                    gradient[i] = weight[i];
                }
                engine.gradients_ready(unit);
            }
        }
        engine.step(0.05);
    }
}

template <class Stage>
std::vector<typename Stage::Registration> parameters(std::size_t frozen) {
    std::vector<typename Stage::Registration> list;
    for (std::size_t unit = 0; unit < units; ++unit) {
        auto const initialise = [](std::size_t begin, std::span<zero::bfloat16> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                float const value = 1.0F + static_cast<float>(begin + i) / elements;
                values[i] = zero::from_float<zero::bfloat16>(value);
            }
        };
        list.push_back({.name = "weight " + std::to_string(unit),
                        .elements = elements,
                        .units = {unit},
                        .trainable = unit >= frozen,
                        .initialise = initialise});
    }
    return list;
}

struct Run {
    std::uint64_t gathered = 0; ///< bytes that rank 0 reads in gathers
    float largest = 0;          ///< of the weights at the end
    std::size_t held = 0;       ///< bytes of the parameters of rank 0
};

/// @param frozen number of units that are not trained
template <class Stage>
Run run(std::size_t frozen = 0) {
    Run result;
    zero::run_ranks(ranks, [&](zero::LoopbackCommunicator& communicator) {
        Stage engine(communicator, parameters<Stage>(frozen));
        communicator.reset_traffic();
        train(engine);
        std::uint64_t const bytes = communicator.traffic()[zero::CollectiveKind::all_gather].bytes;
        float largest = 0;
        engine.for_each_full_parameter([&](std::size_t, std::span<zero::bfloat16 const> values) {
            for (zero::bfloat16 const value : values) {
                largest = std::fmax(largest, std::fabs(zero::to_float(value)));
            }
        });
        if (communicator.rank() == 0) {
            result = {bytes, largest, engine.memory_plan()[zero::BufferKind::parameters].bytes()};
        }
    });
    return result;
}

} // namespace

int main() {
    Run const plain = run<Plain>();
    Run const encoded = run<Zero>();
    std::printf("a rank gathers %llu bytes, and %llu in codes; weights end below %g and %g\n",
                static_cast<unsigned long long>(plain.gathered),
                static_cast<unsigned long long>(encoded.gathered),
                static_cast<double>(plain.largest), static_cast<double>(encoded.largest));
    bool const is_half = encoded.gathered * 128 == plain.gathered * 66; // bytes of 64 elements
    Run const base = run<Plain>(units - 1);
    Run const codes = run<Adapters>(units - 1);
    std::printf("with a frozen base parameters take %zu bytes, and %zu in codes\n", base.held,
                codes.held);
    std::size_t const frozen_blocks = (units - 1) * elements / 64 / ranks;
    bool const is_smaller =
        base.held - codes.held == frozen_blocks * (128 - 66) && codes.gathered < plain.gathered;
    return is_half && is_smaller && encoded.largest < 0.4F ? 0 : 1;
}
