// ZeRO stage 2 without the library, to be read from top to bottom: four ranks, sharded AdamW, and
// the two collectives that they need. At its end the library trains the same model, and the program
// fails unless every bit of the parameters is the same.
//
// The algorithm is that of Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models" (2020), section 5, stage P_os+g.

#include <zero/zero.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

constexpr std::size_t rank_count = 4, layer_count = 3, width = 50, steps = 200, micro_steps = 2;
constexpr double learning_rate = 0.02;

// ---------------------------------------------------------------------------------------------
// The model: y = x + tanh(weight * x + bias), element by element, in each of three layers. The
// parameters of a layer are its weights, then its biases.

constexpr std::size_t layer_elements = 2 * width;
using Sample = std::array<float, width>;

/// Not inlined, so that both trainers run the same instructions under all compiler flags.
[[gnu::noinline]] Sample forward(std::span<float const> layer, Sample const& x) {
    Sample y;
    for (std::size_t i = 0; i < width; ++i)
        y[i] = x[i] + std::tanh(layer[i] * x[i] + layer[width + i]);
    return y;
}

/// Adds to the layer's gradients. Turns the gradient of its output into that of its input.
[[gnu::noinline]] void backward(std::span<float const> layer, Sample const& x, Sample const& y,
                                Sample& gradient, std::span<float> layer_gradients) {
    for (std::size_t i = 0; i < width; ++i) {
        float const inner = gradient[i] * (1.0F - (y[i] - x[i]) * (y[i] - x[i]));
        layer_gradients[i] += inner * x[i];
        layer_gradients[width + i] += inner;
        gradient[i] += inner * layer[i];
    }
}

/// Gradient of half the squared distance to the target, x + sin(x).
[[gnu::noinline]] Sample compare(Sample const& x, Sample const& y) {
    Sample gradient;
    for (std::size_t i = 0; i < width; ++i) gradient[i] = y[i] - (x[i] + std::sin(x[i]));
    return gradient;
}

/// The input of a rank in a micro-step: no two ranks have the same.
Sample input(std::size_t step, std::size_t micro_step, std::size_t rank) {
    Sample x;
    for (std::size_t i = 0; i < width; ++i)
        x[i] = std::sin(static_cast<float>(
            ((step * micro_steps + micro_step) * rank_count + rank) * width + i));
    return x;
}

std::array<std::vector<float>, layer_count> initial_parameters() {
    std::array<std::vector<float>, layer_count> layers;
    for (std::size_t layer = 0; layer < layer_count; ++layer)
        for (std::size_t i = 0; i < layer_elements; ++i)
            layers[layer].push_back(0.1F * std::sin(static_cast<float>(7 * i + layer)));
    return layers;
}

// ---------------------------------------------------------------------------------------------
// The geometry: a layer is a bucket. Padding makes it divisible by the number of ranks, and rank r
// owns the r-th of equal shards.

constexpr std::size_t shard_elements = (layer_elements + rank_count - 1) / rank_count;
constexpr std::size_t bucket_elements = rank_count * shard_elements;
using Bucket = std::array<float, bucket_elements>;
using Shard = std::array<float, shard_elements>;

// ---------------------------------------------------------------------------------------------
// The collectives. Every rank shares a pointer, and reads the buffers of its peers between two
// meetings: no rank reads before all have shared theirs, and no rank leaves while a peer still
// reads.

struct Collectives {
    std::barrier<> barrier{rank_count};
    std::array<Bucket*, rank_count> buckets{};

    void meet() { barrier.arrive_and_wait(); }

    /// Sums the ranks' buckets; each rank gets the sum of its own shard. The order of addition is
    /// that of the ranks, from rank 0 on, so the result does not depend on which rank arrives
    /// first.
    Shard reduce_scatter(std::size_t rank, Bucket& mine) {
        buckets[rank] = &mine;
        meet();
        Shard sum;
        for (std::size_t i = 0; i < shard_elements; ++i) {
            std::size_t const at = rank * shard_elements + i;
            sum[i] = (*buckets[0])[at];
            for (std::size_t peer = 1; peer < rank_count; ++peer) sum[i] += (*buckets[peer])[at];
        }
        meet();
        return sum;
    }

    /// Copies every peer's own shard into this rank's bucket.
    void all_gather(std::size_t rank, Bucket& mine) {
        buckets[rank] = &mine;
        meet();
        for (std::size_t peer = 0; peer < rank_count; ++peer)
            if (peer != rank)
                std::copy_n(buckets[peer]->begin() + peer * shard_elements, shard_elements,
                            mine.begin() + peer * shard_elements);
        meet();
    }
};

// ---------------------------------------------------------------------------------------------
// AdamW, rounded as the library rounds it (see zero/ops/adamw.hpp). Every product that feeds a sum
// is an explicit fused multiply-add; otherwise the compiler could fuse in one program and not in
// the other.

/// base^exponent by squaring: the same bits everywhere, which std::pow does not promise.
[[gnu::noinline]] double power(double base, std::size_t exponent) {
    double result = 1.0;
    for (; exponent != 0; exponent /= 2) {
        if (exponent % 2 == 1) result *= base;
        base *= base;
    }
    return result;
}

struct AdamW {
    float rate1, beta2, rate2, step_size, inverse_root, epsilon, decay;

    /// The constants of a step, counted from 1, with the library's default options.
    explicit AdamW(std::size_t step)
        : rate1(static_cast<float>(1.0 - 0.9)), beta2(static_cast<float>(0.999)),
          rate2(static_cast<float>(1.0 - 0.999)), epsilon(static_cast<float>(1e-8)),
          decay(static_cast<float>(learning_rate * 0.01)) {
        double const correction1 = 1.0 - power(1.0 - double{rate1}, step);
        double const correction2 =
            double{rate2} * ((1.0 - power(double{beta2}, step)) / (1.0 - double{beta2}));
        step_size = static_cast<float>(learning_rate / correction1);
        inverse_root = static_cast<float>(1.0 / std::sqrt(correction2));
    }

    void update(float& parameter, float gradient, float& first, float& second) const {
        first = std::fma(rate1, gradient, std::fma(-rate1, first, first));
        second = std::fma(beta2, second, rate2 * (gradient * gradient));
        float const direction = first / std::fma(inverse_root, std::sqrt(second), epsilon);
        parameter -= std::fma(step_size, direction, decay * parameter);
    }
};

// ---------------------------------------------------------------------------------------------
// ZeRO stage 2. A rank holds all parameters, but only its shard of the gradients and of the
// optimizer state, and whole gradients of one bucket at a time.

struct Rank {
    std::array<Bucket, layer_count> parameters{};     // replicated
    std::array<Shard, layer_count> gradients{};       // sharded: summed over ranks and micro-steps
    std::array<Shard, layer_count> first{}, second{}; // sharded: the moments of AdamW
    Bucket lease{};                                   // gradients of the bucket in flight
};

void train_by_hand(std::size_t rank, Rank& mine, Collectives& collectives) {
    for (std::size_t step = 0; step < steps; ++step) {
        mine.gradients = {};
        for (std::size_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
            std::array<Sample, layer_count + 1> activations{input(step, micro_step, rank)};
            for (std::size_t layer = 0; layer < layer_count; ++layer)
                activations[layer + 1] = forward(mine.parameters[layer], activations[layer]);
            Sample gradient = compare(activations.front(), activations.back());
            for (std::size_t layer = layer_count; layer-- > 0;) {
                mine.lease.fill(0.0F);
                backward(mine.parameters[layer], activations[layer], activations[layer + 1],
                         gradient, mine.lease);
                // Reduce the gradients of a layer as soon as they are complete, and keep only the
                // own shard. The next layer reuses the lease.
                Shard const sum = collectives.reduce_scatter(rank, mine.lease);
                for (std::size_t i = 0; i < shard_elements; ++i) mine.gradients[layer][i] += sum[i];
            }
        }
        // The mean over ranks and micro-steps is one factor at the end. Each rank updates its own
        // shard, then copies the other shards from their owners.
        auto const factor = static_cast<float>(1.0 / double{rank_count * micro_steps});
        AdamW const adamw(step + 1);
        for (std::size_t layer = 0; layer < layer_count; ++layer) {
            for (std::size_t i = 0; i < shard_elements; ++i)
                adamw.update(mine.parameters[layer][rank * shard_elements + i],
                             mine.gradients[layer][i] * factor, mine.first[layer][i],
                             mine.second[layer][i]);
            collectives.all_gather(rank, mine.parameters[layer]);
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The same training with the library.

using Zero = zero::ZeroStage<2, zero::AdamW>;
using Parameters = std::array<std::vector<float>, layer_count>;

Parameters train_with_zero(zero::LoopbackCommunicator& communicator) {
    Parameters initial = initial_parameters();
    std::vector<Zero::Registration> registrations;
    for (std::size_t layer = 0; layer < layer_count; ++layer)
        registrations.push_back({.name = "layer " + std::to_string(layer),
                                 .initial = initial[layer].data(),
                                 .elements = layer_elements,
                                 .units = {layer}});
    Zero engine(communicator, registrations, {});
    auto const rank = static_cast<std::size_t>(communicator.rank());
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(micro_steps)) {
            std::array<Sample, layer_count + 1> activations{input(step, micro_step, rank)};
            for (std::size_t layer = 0; layer < layer_count; ++layer) {
                auto const weights = engine.acquire(layer);
                activations[layer + 1] = forward(weights[layer], activations[layer]);
            }
            Sample gradient = compare(activations.front(), activations.back());
            for (std::size_t layer = layer_count; layer-- > 0;) {
                auto const weights = engine.acquire(layer);
                auto const gradients = engine.gradients(layer);
                backward(weights[layer], activations[layer], activations[layer + 1], gradient,
                         gradients[layer]);
                engine.gradients_ready(layer);
            }
        }
        engine.step(learning_rate);
    }
    Parameters trained;
    engine.for_each_full_parameter([&](std::size_t layer, std::span<float const> values) {
        trained[layer].assign(values.begin(), values.end());
    });
    return trained;
}

int main() {
    Parameters const initial = initial_parameters();
    std::array<Rank, rank_count> ranks;
    Collectives collectives;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < rank_count; ++rank) {
        for (std::size_t layer = 0; layer < layer_count; ++layer)
            std::copy(initial[layer].begin(), initial[layer].end(),
                      ranks[rank].parameters[layer].begin());
        threads.emplace_back([&, rank] { train_by_hand(rank, ranks[rank], collectives); });
    }
    for (std::thread& thread : threads) thread.join();

    std::array<Parameters, rank_count> trained;
    zero::run_ranks(rank_count, [&](zero::LoopbackCommunicator& communicator) {
        trained[static_cast<std::size_t>(communicator.rank())] = train_with_zero(communicator);
    });

    std::size_t different = 0;
    float largest_change = 0.0F;
    for (std::size_t rank = 0; rank < rank_count; ++rank)
        for (std::size_t layer = 0; layer < layer_count; ++layer)
            for (std::size_t i = 0; i < layer_elements; ++i) {
                float const by_hand = ranks[rank].parameters[layer][i];
                float const with_zero = trained[rank][layer][i];
                different += std::memcmp(&by_hand, &with_zero, sizeof by_hand) != 0 ? 1 : 0;
                largest_change = std::max(largest_change, std::fabs(by_hand - initial[layer][i]));
            }
    std::printf("%zu parameters on %zu ranks, %zu steps; the largest change is %.3f\n",
                layer_count * layer_elements, rank_count, steps,
                static_cast<double>(largest_change));
    if (different == 0)
        std::printf("by hand and with zero::ZeroStage<2>: the same bits\n");
    else
        std::printf("%zu parameters differ\n", different);
    return different == 0 && largest_change > 0.1F ? 0 : 1;
}
