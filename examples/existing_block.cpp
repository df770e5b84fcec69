// A trainer that keeps all parameters in one block and all gradients in another, as hand-written C
// does. The engine adopts the block: buckets are communicated in place, nothing is copied, and the
// code of the model stays unchanged.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int world = 4;
constexpr int steps = 200;

/// The unchanged trainer: y = output . relu(hidden x + bias), with plain pointers into two blocks.
struct Trainer {
    static constexpr std::size_t inputs = 7, width = 33; // odd sizes: nothing is aligned
    static constexpr std::size_t total = width * inputs + width + width;

    std::vector<float> block = std::vector<float>(total);
    std::vector<float> gradient_block = std::vector<float>(total);

    Trainer() {
        for (std::size_t i = 0; i < total; ++i)
            block[i] = 0.3F * std::sin(static_cast<float>(5 * i + 1));
    }

    /// Overwrites all gradients with the gradients of one sample; returns half the squared error.
    float forward_backward(std::size_t sample) {
        float const *hidden = block.data(), *bias = hidden + width * inputs, *output = bias + width;
        float *hidden_gradient = gradient_block.data(),
              *bias_gradient = hidden_gradient + width * inputs,
              *output_gradient = bias_gradient + width;
        float x[inputs], activation[width], target = 0.0F, y = 0.0F;
        for (std::size_t i = 0; i < inputs; ++i) {
            x[i] = std::sin(static_cast<float>(sample * inputs + i));
            target += x[i] * static_cast<float>(i % 3) * 0.5F;
        }
        for (std::size_t j = 0; j < width; ++j) {
            float sum = bias[j];
            for (std::size_t i = 0; i < inputs; ++i) sum += hidden[j * inputs + i] * x[i];
            activation[j] = sum > 0.0F ? sum : 0.0F;
            y += output[j] * activation[j];
        }
        float const difference = y - target;
        for (std::size_t j = 0; j < width; ++j) {
            output_gradient[j] = difference * activation[j];
            bias_gradient[j] = activation[j] > 0.0F ? difference * output[j] : 0.0F;
            for (std::size_t i = 0; i < inputs; ++i)
                hidden_gradient[j * inputs + i] = bias_gradient[j] * x[i];
        }
        return 0.5F * difference * difference;
    }
};

struct Result {
    std::vector<float> block; ///< the block of the last rank
    float loss = 0.0F;        ///< mean of the last 50 steps
    std::size_t engine_bytes = 0;
};

template <int N>
Result train() {
    using Zero = zero::ZeroStage<N, zero::AdamW>;
    Result result;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        Trainer trainer;
        std::size_t const sizes[] = {Trainer::width * Trainer::inputs, Trainer::width,
                                     Trainer::width};
        char const* const names[] = {"hidden", "bias", "output"};
        // One parameter after another in the block, and their gradients in the other block.
        auto const parameters =
            zero::register_block(trainer.block.data(), trainer.gradient_block.data(), sizes, names);
        Zero engine(communicator, parameters,
                    {.storage = zero::Storage::adopted, .adopted_block = trainer.block});
        float loss = 0.0F;
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0); // from here on the block is up to date
                // Not zeroed: the trainer writes every element, into its own block.
                engine.begin_gradients(0, zero::GradientWrites::overwritten);
                loss += trainer.forward_backward(step * world
                                                 + static_cast<std::size_t>(communicator.rank()))
                        * (step >= steps - 50 ? 0.02F : 0.0F);
                engine.gradients_ready(0);
            }
            engine.step(0.01);
        }
        engine.for_each_full_parameter([](std::size_t, auto) {}); // waits for the last update
        if (communicator.rank() == world - 1)
            result = {trainer.block, loss, engine.memory_plan().engine_bytes()};
    });
    return result;
}

bool is_same(Result const& one, Result const& other) {
    return one.block.size() == Trainer::total
           && std::memcmp(one.block.data(), other.block.data(), Trainer::total * sizeof(float))
                  == 0;
}

} // namespace

int main() {
    Result const zero = train<0>(), one = train<1>(), two = train<2>();
    int stage = 0;
    for (Result const* const result : {&zero, &one, &two}) {
        std::printf("stage %d: loss %.5f, beside the trainer's blocks the engine holds %zu bytes\n",
                    stage++, static_cast<double>(result->loss), result->engine_bytes);
    }
    bool const is_equal = is_same(zero, one) && is_same(zero, two);
    std::printf("the trainer's blocks are %s\n", is_equal ? "bit-identical" : "DIFFERENT");
    return is_equal && zero.loss < 0.01F ? 0 : 1;
}
