// The time that zero::torch adds to a LibTorch program on one rank: for each unit of a module of
// many small units, and for the step of a language model, compared with a program that drives the
// engine by hand. Needs LibTorch (-DZERO_TORCH=...).

#include <zero/torch.hpp>

#include <ATen/Parallel.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <torch/torch.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using MicroStep = std::function<void()>;

double seconds_of(MicroStep const& run) {
    auto const begin = Clock::now();
    run();
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Returns the median time of each candidate. The candidates take turns.
std::vector<double> medians(std::vector<MicroStep> const& candidates, int turns) {
    std::vector<std::vector<double>> times(candidates.size());
    for (int turn = -2; turn < turns; ++turn) {
        for (std::size_t number = 0; number < candidates.size(); ++number) {
            double const time = seconds_of(candidates[number]);
            if (turn >= 0) {
                times[number].push_back(time);
            }
        }
    }
    std::vector<double> middle;
    for (std::vector<double>& list : times) {
        std::nth_element(list.begin(), list.begin() + turns / 2, list.end());
        middle.push_back(list[static_cast<std::size_t>(turns / 2)]);
    }
    return middle;
}

constexpr int small_units = 64;

struct ChainImpl : torch::nn::Module {
    std::vector<torch::nn::Linear> layers;
    ChainImpl() {
        for (int layer = 0; layer < small_units; ++layer) {
            layers.push_back(
                register_module("layer" + std::to_string(layer), torch::nn::Linear(4, 4)));
        }
    }
    std::vector<zero::torch::Unit> units() {
        std::vector<zero::torch::Unit> all;
        for (auto& layer : layers) all.emplace_back(layer->name(), layer);
        return all;
    }
};
TORCH_MODULE(Chain);

template <class Zero>
std::vector<typename Zero::Registration> registrations_of(Chain& chain) {
    std::vector<typename Zero::Registration> parameters;
    for (std::size_t unit = 0; unit < small_units; ++unit) {
        for (auto const& item : chain->layers[unit]->named_parameters()) {
            parameters.push_back({.name = std::to_string(unit) + "." + item.key(),
                                  .elements = static_cast<std::size_t>(item.value().numel()),
                                  .units = {unit}});
        }
    }
    return parameters;
}

/// Makes the calls that the adapter makes to an engine, without a module.
template <class Zero>
void call(Zero& engine) {
    engine.begin_step();
    engine.begin_micro_step(zero::MicroStep::last);
    for (std::size_t unit = 0; unit < small_units; ++unit) {
        (void)engine.acquire(unit);
    }
    for (std::size_t unit = small_units; unit-- > 0;) {
        auto const handle = engine.acquire(unit);
        engine.begin_gradients(unit);
        engine.gradients_ready(unit);
    }
    engine.cancel_step();
}

template <int N>
void print_overhead() {
    zero::run_ranks(1, [&](zero::LoopbackCommunicator& communicator) {
        using Zero = zero::ZeroStage<N>;
        Chain plain, module;
        zero::torch::Sharded<Zero> sharded(communicator, *module, module->units());
        Zero engine(communicator, registrations_of<Zero>(module), {});
        at::Tensor const input = torch::ones({1, 4});
        auto const run = [&](Chain& chain, auto&& wrap) {
            at::Tensor x = input;
            for (std::size_t unit = 0; unit < small_units; ++unit) {
                x = wrap(unit, [&] { return chain->layers[unit](x); });
            }
            return x.sum();
        };
        auto const times = medians(
            {[&] { run(plain, [](std::size_t, auto&& forward) { return forward(); }).backward(); },
             [&] { call(engine); },
             [&] {
                 sharded->begin_step();
                 sharded->begin_micro_step(zero::MicroStep::last);
                 sharded.backward(run(module, sharded));
                 sharded->cancel_step();
             }},
            200);
        auto const per_unit = [&](double time) { return 1e6 * time / small_units; };
        std::printf("stage %d, per unit and micro-step: LibTorch %.1f us, engine %.1f us, with the "
                    "adapter %.1f us, which adds %.1f us\n",
                    N, per_unit(times[0]), per_unit(times[1]), per_unit(times[2]),
                    per_unit(times[2] - times[1] - times[0]));
    });
}

constexpr std::int64_t width = 256, depth = 6, vocabulary = 1024, length = 64, batch = 4;

struct BlockImpl : torch::nn::Module {
    torch::nn::LayerNorm norm{nullptr};
    torch::nn::Linear query_key_value{nullptr}, project{nullptr}, up{nullptr}, down{nullptr};
    BlockImpl() {
        norm = register_module("norm", torch::nn::LayerNorm(std::vector<std::int64_t>{width}));
        query_key_value = register_module("query_key_value", torch::nn::Linear(width, 3 * width));
        project = register_module("project", torch::nn::Linear(width, width));
        up = register_module("up", torch::nn::Linear(width, 4 * width));
        down = register_module("down", torch::nn::Linear(4 * width, width));
    }
    at::Tensor forward(at::Tensor const& x) {
        auto const parts = query_key_value(norm(x))
                               .view({batch, length, 3, 4, width / 4})
                               .permute({2, 0, 3, 1, 4});
        at::Tensor const mixed =
            at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
        at::Tensor const y = x + project(mixed.transpose(1, 2).reshape({batch, length, width}));
        return y + down(torch::gelu(up(y)));
    }
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
    torch::nn::Embedding embedding{nullptr};
    std::vector<Block> blocks;
    GptImpl() {
        embedding = register_module("embedding", torch::nn::Embedding(vocabulary, width));
        for (int block = 0; block < depth; ++block) {
            blocks.push_back(register_module("block" + std::to_string(block), Block()));
        }
    }
    std::vector<zero::torch::Unit> units() {
        std::vector<zero::torch::Unit> all{{"embedding", embedding}};
        for (auto& block : blocks) all.emplace_back(block->name(), block);
        all.emplace_back("head", embedding);
        return all;
    }
};
TORCH_MODULE(Gpt);

template <class Run>
at::Tensor loss_of(Gpt& model, at::Tensor const& tokens, Run&& run) {
    at::Tensor x = run(0, [&] { return model->embedding(tokens); });
    for (std::size_t block = 0; block < depth; ++block) {
        x = run(block + 1, [&] { return model->blocks[block](x); });
    }
    x = run(depth + 1, [&] { return x.matmul(model->embedding->weight.t()); });
    return torch::nn::functional::cross_entropy(x.view({-1, vocabulary}), tokens.view({-1}));
}

/// The module keeps its tensors; gradients are where the engine reads them.
template <class Zero>
struct ByHand {
    Gpt model;
    std::vector<std::vector<float>> gradients;
    std::optional<Zero> engine;

    explicit ByHand(zero::LoopbackCommunicator& communicator) {
        std::vector<typename Zero::Registration> parameters;
        for (auto const& parameter : model->named_parameters()) {
            auto const& tensor = parameter.value();
            gradients.emplace_back(static_cast<std::size_t>(tensor.numel()));
            tensor.mutable_grad() = at::from_blob(gradients.back().data(), tensor.sizes());
            parameters.push_back({.name = parameter.key(),
                                  .data = tensor.template mutable_data_ptr<float>(),
                                  .elements = gradients.back().size(),
                                  .units = {parameters.size()},
                                  .gradient = gradients.back().data()});
        }
        engine.emplace(communicator, parameters,
                       typename Zero::Options{.storage = zero::Storage::scattered});
    }
    void step(at::Tensor const& tokens) {
        engine->begin_step();
        engine->begin_micro_step(zero::MicroStep::last);
        for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.0F);
        loss_of(model, tokens, [](std::size_t, auto&& forward) { return forward(); }).backward();
        for (std::size_t unit = gradients.size(); unit-- > 0;) engine->gradients_ready(unit);
        engine->end_micro_step();
        engine->step(0.001);
        for (std::size_t unit = 0; unit < gradients.size(); ++unit) (void)engine->acquire(unit);
    }
};

template <class Adapter, class Run, class Step>
void step_by(Adapter& adapter, Gpt& model, at::Tensor const& tokens, Run&& run, Step const& step) {
    adapter->begin_step();
    adapter->begin_micro_step(zero::MicroStep::last);
    adapter.backward(loss_of(model, tokens, run));
    adapter->end_micro_step();
    step();
}

void print_steps() {
    zero::run_ranks(1, [&](zero::LoopbackCommunicator& communicator) {
        at::Tensor const tokens = torch::randint(vocabulary, {batch, length});
        auto const plain_run = [](std::size_t, auto&& forward) { return forward(); };
        Gpt plain, second, third, whole;
        torch::optim::AdamW optimizer(plain->parameters(), torch::optim::AdamWOptions(0.001));
        ByHand<zero::ZeroStage<2>> by_hand(communicator);
        zero::torch::Sharded<zero::ZeroStage<2>> stage2(communicator, *second, second->units());
        zero::torch::Sharded<zero::ZeroStage<3>> stage3(communicator, *third, third->units());
        zero::torch::Replicated<zero::ZeroStage<2>> replicated(communicator, *whole);
        auto const times = medians(
            {[&] { by_hand.step(tokens); },
             [&] { step_by(stage2, second, tokens, stage2, [&] { stage2.step(0.001); }); },
             [&] { step_by(stage3, third, tokens, stage3, [&] { stage3.step(0.001); }); },
             [&] {
                 step_by(replicated, whole, tokens, plain_run, [&] { replicated.step(0.001); });
             },
             [&] {
                 optimizer.zero_grad();
                 loss_of(plain, tokens, plain_run).backward();
                 optimizer.step();
             }},
            30);
        char const* const names[] = {"stage 2 by hand", "Sharded, stage 2", "Sharded, stage 3",
                                     "Replicated, stage 2", "torch::optim::AdamW"};
        std::int64_t elements = 0;
        for (at::Tensor const& parameter : plain->parameters()) elements += parameter.numel();
        std::printf("step of a model of %lld parameters\n", static_cast<long long>(elements));
        for (std::size_t number = 0; number < times.size(); ++number) {
            std::printf("%-20s %7.2f ms  %.3f of by hand\n", names[number], 1e3 * times[number],
                        times[number] / times[0]);
        }
    });
}

} // namespace

int main() {
    at::set_num_threads(1);
    print_overhead<1>();
    print_overhead<3>();
    print_steps();
}
