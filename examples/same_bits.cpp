// A step of 8 micro-batches, with dropout, on 1, 2, 4 and 8 ranks: the same bits.

#include <zero/zero.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::size_t micro_batches = 8; ///< of a step, over all ranks
constexpr std::size_t steps = 20;
constexpr std::size_t elements = 1000;
constexpr std::uint64_t seed = 1234;

/// The gradient of a micro-batch: it depends on the number, and on no rank.
float gradient(std::size_t step, std::size_t number, std::size_t i) {
    return std::sin(static_cast<float>((step * micro_batches + number) * elements + i));
}

/// Returns a hash of the parameters after training.
template <class Zero>
std::uint32_t train(int world) {
    std::uint32_t hash = 0;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        std::vector<typename Zero::Registration> const parameters{
            {.name = "weight", .elements = elements}};
        typename Zero::Options options;
        options.reduction.micro_batches = micro_batches;
        Zero engine(communicator, parameters, options);
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps()) { // 8 / W of them
                std::size_t const number = engine.micro_batch(micro_step);
                std::size_t const first = step * engine.micro_batches(); // of this step
                auto const dropout = zero::ops::random_key(seed, first + number);
                auto const weight = engine.gradients(0)[0];
                for (std::size_t i = 0; i < elements; ++i) {
                    if (zero::ops::uniform(dropout, i) >= 0.1F) {
                        weight[i] += gradient(step, number, i);
                    }
                }
                engine.gradients_ready(0);
            }
            engine.step(0.01);
        }
        engine.for_each_full_parameter([&](std::size_t, std::span<float const> values) {
            for (std::size_t i = 0; i < values.size() && communicator.rank() == 0; ++i) {
                hash = hash * 31 + std::bit_cast<std::uint32_t>(values[i]);
            }
        });
    });
    return hash;
}

} // namespace

int main() {
    using Zero = zero::ZeroStage<2, zero::TreeReduction<>>;
    std::uint32_t const expected = train<Zero>(1);
    bool is_same = true;
    for (int const world : {1, 2, 4, 8}) {
        std::uint32_t const hash = train<Zero>(world);
        std::printf("%d ranks: %08x\n", world, hash);
        is_same = is_same && hash == expected;
    }
    return is_same ? 0 : 1;
}
