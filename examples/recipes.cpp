// Answers to questions of trainers; docs/guides/recipes.md shows most of this code.

#include <zero/policy/averaged.hpp>
#include <zero/stage/averaged_weights.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace {

// A trainer that is a template of the stage writes `typename` before the stage's types.
template <int N>
std::vector<float> train(zero::LoopbackCommunicator& communicator, std::vector<float> const& start,
                         bool is_clipped) {
    using Zero = zero::ZeroStage<N, zero::Sgd>;
    std::vector<typename Zero::Registration> const parameters{
        {.name = "weight", .initial = start.data(), .elements = start.size()}};
    typename Zero::Options options{.gradient_clipping = 1.0F};
    if (!is_clipped) options.gradient_clipping = std::nullopt; // off
    Zero engine(communicator, parameters, options);
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(2)) {
        typename Zero::Gradients const gradients = engine.gradients(0);
        for (float& gradient : gradients[0]) gradient += static_cast<float>(micro_step);
        engine.gradients_ready(0);
    }
    typename Zero::Ticket const ticket = engine.step(0.5);
    ticket.wait();
    std::vector<float> all(start.size());
    engine.gather_to(all); // collective
    return all;
}

using Zero = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::AdamW>;

/// A type of another library, with the same 16 bits.
struct OtherBfloat16 {
    std::uint16_t bits;
};

/// A tensor that holds the weights of all layers, one after the other.
struct Stacked {
    static constexpr std::size_t layers = 4, layer_elements = 96;
    std::vector<OtherBfloat16> values = std::vector<OtherBfloat16>(layers * layer_elements),
                               gradients = std::vector<OtherBfloat16>(layers * layer_elements);
};

std::vector<Zero::Registration> registrations(Stacked& tensor) {
    // The types differ in name only, so the address is enough.
    auto* const values = reinterpret_cast<zero::bfloat16*>(tensor.values.data());
    auto* const gradients = reinterpret_cast<zero::bfloat16*>(tensor.gradients.data());
    std::vector<Zero::Registration> list;
    for (std::size_t layer = 0; layer < Stacked::layers; ++layer)
        list.push_back({.name = "weight of layer " + std::to_string(layer),
                        .data = values + layer * Stacked::layer_elements,
                        .elements = Stacked::layer_elements,
                        .units = {layer}, // each layer is reduced when it is ready
                        .gradient = gradients + layer * Stacked::layer_elements});
    return list;
}

Zero::Options options_of(Stacked const& tensor) {
    Zero::Options options{.storage = zero::Storage::scattered};
    // Asked before every step: where is the memory now?
    options.current_memory = [&tensor](std::size_t layer) -> zero::CurrentMemory {
        std::size_t const begin = layer * Stacked::layer_elements;
        return {tensor.values.data() + begin, tensor.gradients.data() + begin,
                Stacked::layer_elements};
    };
    options.bucketer.bucket_bytes = 1U << 20U; // at most 1 MiB unless one parameter is larger
    return options;
}

/// A caller-defined update: plain descent with weight decay.
Zero::Ticket update(Zero& engine) {
    return engine.step(0.5, [](auto const& slice) {
        auto const weights = slice.weights(); // the float master weights
        auto const rate = static_cast<float>(slice.learning_rate);
        float const decay = slice.group == 0 ? 0.01F : 0.0F;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            float const gradient = zero::to_float(slice.gradient[i]) * slice.factor;
            weights[i] -= rate * (gradient + decay * weights[i]);
        }
    });
}

/// Sets all parameters, for instance to those of a file: each rank writes its own slices.
void load(Zero& engine, float value) {
    engine.for_each_owned_slice([&](Zero::OwnedSlice const& slice) {
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            slice.values[i] = zero::from_float<zero::bfloat16>(value);
            slice.states[0][i] = 0.0F; // the first moment
        }
    });
    zero::TrainingState(engine).publish_master_weights(); // collective; master weights follow
}

/// The state that a run needs to continue in another engine, of any stage and number of ranks.
struct Saved {
    std::vector<std::vector<float>> weights, states;
    std::uint64_t steps = 0;
};

Saved save(Zero& engine) {
    zero::TrainingState state(engine);
    Saved saved;
    for (std::size_t k = 0; k < engine.layout().parameters().size(); ++k) {
        saved.weights.push_back(state.full_fp32_parameter(k)); // collective: call it on every rank
        for (std::string const& name : state.state_names())    // "exp_avg", "exp_avg_sq"
            saved.states.push_back(state.full_optimizer_state(k, name));
    }
    saved.steps = engine.step_count();
    return saved;
}

void resume(Zero& engine, Saved const& saved) {
    zero::TrainingState state(engine);
    auto values = saved.states.begin();
    for (std::size_t k = 0; k < saved.weights.size(); ++k) {
        state.set_full_fp32_parameter(k, saved.weights[k]); // takes the values of rank 0
        for (std::string const& name : state.state_names())
            state.set_full_optimizer_state(k, name, *values++);
    }
    engine.set_step_count(saved.steps); // AdamW's bias correction depends on it
}

bool train_stacked(zero::LoopbackCommunicator& communicator) {
    Stacked tensor;
    Zero engine(communicator, registrations(tensor), options_of(tensor));
    engine.check_memory(registrations(tensor)); // throws if anything moved
    // Replicas in memory of the caller take the values of rank 0, and master weights follow.
    if (communicator.rank() == 0)
        for (OtherBfloat16& value : tensor.values) value.bits = 0x3f80; // 1
    engine.parameters_changed();
    engine.begin_step();
    engine.begin_micro_step(zero::MicroStep::last);
    for (std::size_t layer = Stacked::layers; layer-- > 0;) {
        engine.begin_gradients(layer); // clears; the backward pass adds to tensor.gradients
        tensor.gradients[layer * Stacked::layer_elements].bits = 0x3f80;
        engine.gradients_ready(layer);
    }
    engine.end_micro_step();
    update(engine).wait();
    Saved const saved = save(engine);
    std::vector<zero::bfloat16> all(Stacked::layers * Stacked::layer_elements);
    engine.gather_to(all);
    load(engine, 2.0F);
    resume(engine, saved);
    bool const is_resumed = save(engine).weights == saved.weights && engine.step_count() == 1;
    float const second = zero::to_float(all[1]), first = zero::to_float(all[0]);
    return is_resumed && first > 0.49F && first < 0.5F && second > 0.99F && second < 1.0F;
}

/// Trains `epochs` epochs of y = weight x; returns the mean loss of the last one's samples.
double train_epochs(zero::LoopbackCommunicator& communicator, std::vector<float> const& samples,
                    int epochs) {
    using Line = zero::ZeroStage<2, zero::Sgd>;
    Line engine(communicator, std::vector<Line::Registration>{{.name = "weight", .elements = 1}},
                {.reduction = {.kind = zero::ReductionKind::weighted_mean}});
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const world = static_cast<std::size_t>(communicator.size());
    constexpr std::size_t batch = 8;
    double loss = 0.0; // of the samples of this rank
    for (int epoch = 0; epoch < epochs; ++epoch) {
        loss = 0.0;
        for (std::size_t begin = 0; begin < samples.size(); begin += batch) {
            // The last batch may be smaller. A rank may then have one sample less, or none.
            std::size_t const count = std::min(batch, samples.size() - begin);
            std::size_t const first = begin + count * rank / world;
            std::size_t const last = begin + count * (rank + 1) / world;
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0);
                auto const gradients = engine.gradients(0);
                for (std::size_t s = first; s < last; ++s) {
                    float const error = weights[0][0] * samples[s] - 3.0F * samples[s];
                    loss += static_cast<double>(error * error);
                    gradients[0][0] += error * samples[s]; // a sum: nothing is divided
                }
                engine.gradients_ready(0); // also on a rank without samples
            }
            engine.step(0.1, static_cast<std::int64_t>(last - first)); // divided by all samples
        }
    }
    return zero::sum_over_ranks(communicator, loss) / static_cast<double>(samples.size());
}

/// Memory of the host up to a limit. Engines take all of their buffers from it.
class LimitedMemory final : public zero::MemoryResource {
public:
    explicit LimitedMemory(std::size_t limit) : _left(limit) {}

    void* allocate(std::size_t bytes, zero::BufferKind kind) override { // from any thread
        if (bytes > _left.load()) throw std::bad_alloc();               // the engine passes it on
        _left -= bytes;
        return zero::HostBackend::default_memory().allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, zero::BufferKind kind) noexcept override {
        _left += bytes;
        zero::HostBackend::default_memory().deallocate(memory, bytes, kind);
    }

private:
    std::atomic<std::size_t> _left;
};

/// Returns whether a model of a million weights can be trained in `bytes` bytes on this rank.
bool fits(zero::LoopbackCommunicator& communicator, std::size_t bytes) {
    using Million = zero::ZeroStage<3, zero::AdamW>;
    LimitedMemory memory(bytes); // outlives the engine
    try {
        Million engine(communicator,
                       std::vector<Million::Registration>{{.name = "w", .elements = 1000000}},
                       {.memory = &memory});
        return true;
    } catch (std::bad_alloc const&) {
        return false;
    }
}

/// Trains with an average of the weights, and returns the weight and what an evaluation saw.
std::array<float, 2> train_averaged(zero::LoopbackCommunicator& communicator) {
    using Averaged = zero::ZeroStage<3, zero::Averaged<zero::Sgd>>;
    std::vector<Averaged::Registration> const parameters{{.name = "weight", .elements = 1}};
    Averaged engine(communicator, parameters,
                    {.optimizer = {.decay = 0.75, .base = {.momentum = 0.0}}});
    for (int step = 0; step < 3; ++step) {
        engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
            engine.gradients(0)[0][0] = -1.0F;
            engine.gradients_ready(0);
        }
        engine.step(1.0); // to 1, 2 and 3
    }
    float seen = 0.0F;
    auto const evaluate = [&](auto& model) {
        auto const weights = model.acquire(0);
        seen = weights[0][0];
    };
    {
        zero::AveragedWeights const averaged(engine); // on every rank, between two steps
        evaluate(engine);
    } // the weights come back, bit for bit
    auto const weights = engine.acquire(0);
    return {weights[0][0], seen};
}

} // namespace

int main() {
    bool is_right = true;
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        std::vector<float> const start(100, 1.0F);
        // Two micro-steps with gradients 0 and 1: their mean is 0.5, and the norm of all is 5.
        float const free = train<3>(communicator, start, false).back();
        float const clipped = train<0>(communicator, start, true).back();
        bool const is_stacked = train_stacked(communicator);
        if (communicator.rank() != 0) return;
        is_right = free == 0.75F && clipped > 0.949F && clipped < 0.951F && is_stacked;
        std::printf("free %.3f, clipped %.3f, stacked %s\n", static_cast<double>(free),
                    static_cast<double>(clipped), is_stacked ? "right" : "WRONG");
    });
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        auto const [weight, average] = train_averaged(communicator);
        if (communicator.rank() != 0) return;
        is_right = is_right && weight == 3.0F && std::abs(average - 2.0F) < 1e-6F;
        std::printf("weight %.3f, average %.3f\n", static_cast<double>(weight),
                    static_cast<double>(average));
    });
    zero::run_ranks(1, [&](zero::LoopbackCommunicator& communicator) {
        bool const is_limited = !fits(communicator, 16000000) && fits(communicator, 24100000);
        std::printf("a limit of memory is %s\n", is_limited ? "kept" : "NOT KEPT");
        is_right = is_right && is_limited;
    });
    std::vector<double> losses;
    for (int world = 1; world <= 3; ++world)
        zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
            double const loss = train_epochs(communicator, {1, -2, 1, 0, 2, -1, 1, 1, 2, -1}, 3);
            if (communicator.rank() == 0) losses.push_back(loss);
        });
    for (double const loss : losses) {
        std::printf("loss %.6f\n", loss);
        is_right = is_right && std::abs(loss - losses[0]) < 1e-6 && loss > 1e-3;
    }
    return is_right ? 0 : 1;
}
