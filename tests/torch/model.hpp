#pragma once

// A small language model in LibTorch, trained by Sharded and by torch::optim::AdamW.

#include "no_check_macro.hpp"

#include <ATen/Parallel.h>
#include <cstdint>
#include <string>
#include <torch/torch.h>
#include <vector>
#include <zero/torch.hpp>

// Not in the namespace zero: the macro TORCH_MODULE means ::torch.
namespace torch_model {

inline constexpr std::int64_t vocabulary = 11;
inline constexpr std::int64_t width = 12;
inline constexpr std::int64_t context = 6;

struct BlockImpl : ::torch::nn::Module {
    ::torch::nn::LayerNorm norm{nullptr};
    ::torch::nn::Linear up{nullptr}, down{nullptr};

    BlockImpl() {
        norm =
            register_module("norm", ::torch::nn::LayerNorm(::torch::nn::LayerNormOptions({width})));
        up = register_module("up", ::torch::nn::Linear(width, 2 * width));
        down = register_module("down", ::torch::nn::Linear(2 * width, width));
    }
    at::Tensor forward(at::Tensor const& x) { return x + down(::torch::tanh(up(norm(x)))); }
};
TORCH_MODULE(Block);

/// Units: 0 embedding, 1 and 2 blocks, 3 head. The head is tied to the embedding.
struct LanguageModelImpl : ::torch::nn::Module {
    ::torch::nn::Embedding embedding{nullptr};
    at::Tensor head_bias;
    std::vector<Block> blocks;
    at::Tensor steps; ///< a buffer

    LanguageModelImpl() {
        embedding = register_module("embedding", ::torch::nn::Embedding(vocabulary, width));
        for (int block = 0; block < 2; ++block) {
            blocks.push_back(register_module("block" + std::to_string(block), Block()));
        }
        head_bias = register_parameter("head_bias", ::torch::zeros({vocabulary}));
        steps = register_buffer("steps", ::torch::zeros({2}));
        ::torch::NoGradGuard const no_gradients;
        int number = 0;
        for (at::Tensor parameter : parameters()) {
            at::Tensor const index = ::torch::arange(parameter.numel(), at::kFloat);
            parameter.copy_((::torch::sin(index * 0.7 + ++number) * 0.3).view_as(parameter));
        }
    }

    std::vector<zero::torch::Unit> units() {
        return {{"embedding", embedding},
                {"block 0", blocks[0]},
                {"block 1", blocks[1]},
                {"head", std::vector<at::Tensor>{embedding->weight, head_bias}}};
    }
};
TORCH_MODULE(LanguageModel);

inline at::Tensor tokens_of(int step, int micro_step, int rank) {
    at::Tensor const index = ::torch::arange(3 * (context + 1), at::kLong);
    return ((index * index + index * (3 * step + 1) + 5 * rank + 2 * micro_step) % vocabulary)
        .view({3, context + 1});
}

/// Returns the loss of one batch. `run(unit, forward)` runs each unit.
template <class Run>
at::Tensor loss_of(LanguageModel& model, at::Tensor const& tokens, Run&& run) {
    at::Tensor const in = tokens.narrow(1, 0, context);
    at::Tensor x = run(0, [&] { return model->embedding(in); });
    x = run(1, [&] { return model->blocks[0](x); });
    x = run(2, [&] { return model->blocks[1](x); });
    x = run(3, [&] {
        return ::torch::nn::functional::linear(x, model->embedding->weight, model->head_bias);
    });
    return ::torch::nn::functional::cross_entropy(x.to(at::kFloat).reshape({-1, vocabulary}),
                                                  tokens.narrow(1, 1, context).reshape({-1}));
}

struct Plain {
    template <class Forward>
    at::Tensor operator()(std::size_t /*unit*/, Forward&& forward) const {
        return forward();
    }
};

} // namespace torch_model
