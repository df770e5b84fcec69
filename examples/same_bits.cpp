// A step of 8 micro-batches, with dropout, on 1, 2, 4 and 8 ranks: the same bits.

#include <zero/zero.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

constexpr std::size_t micro_batches = 8; ///< of a step, over all ranks
constexpr std::size_t steps = 20;
constexpr std::size_t batch = 4; ///< samples of a micro-batch
constexpr std::size_t samples = 256;
constexpr std::size_t elements = 1000;
constexpr std::uint64_t seed = 1234;

/// Shuffles the samples: the same order on every rank.
std::vector<std::size_t> shuffled() {
    std::vector<std::size_t> order(samples);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [](std::size_t a, std::size_t b) {
        return zero::ops::uniform(seed, a) < zero::ops::uniform(seed, b);
    });
    return order;
}

/// The gradient of a sample.
float gradient(std::size_t sample, std::size_t i) {
    return std::sin(static_cast<float>(sample * elements + i));
}

/// Returns a hash of the parameters after training.
template <class Zero>
std::uint32_t train(int world) {
    std::uint32_t hash = 0;
    std::vector<std::size_t> const order = shuffled();
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
                for (std::size_t place = 0; place < batch; ++place) {
                    std::size_t const sample = order[((first + number) * batch + place) % samples];
                    for (std::size_t i = 0; i < elements; ++i) {
                        if (zero::ops::uniform(dropout, place * elements + i) >= 0.1F) {
                            weight[i] += gradient(sample, i) / batch;
                        }
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
