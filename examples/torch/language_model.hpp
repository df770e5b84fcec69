#pragma once

// A small language model in LibTorch. Its head uses the weights of its embedding.

#include <zero/torch.hpp>

#include <cstdint>
#include <string>
#include <torch/torch.h>
#include <vector>

constexpr int depth = 4;
constexpr std::int64_t vocabulary = 64, width = 64, length = 16, batch = 4;

struct BlockImpl : torch::nn::Module {
    torch::nn::LayerNorm norm{nullptr};
    torch::nn::Linear up{nullptr}, down{nullptr};
    BlockImpl() {
        norm = register_module("norm", torch::nn::LayerNorm(std::vector<std::int64_t>{width}));
        up = register_module("up", torch::nn::Linear(width, 4 * width));
        down = register_module("down", torch::nn::Linear(4 * width, width));
    }
    at::Tensor forward(at::Tensor const& x) { return x + down(torch::gelu(up(norm(x)))); }
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
    torch::nn::Embedding embedding{nullptr}; // also the weight of the head
    std::vector<Block> blocks;
    ModelImpl() {
        embedding = register_module("embedding", torch::nn::Embedding(vocabulary, width));
        for (int number = 0; number < depth; ++number) {
            blocks.push_back(register_module("block" + std::to_string(number), Block()));
        }
        torch::NoGradGuard const no_gradients;
        int number = 0;
        for (at::Tensor parameter : parameters()) { // the same in every thread
            at::Tensor const index = torch::arange(parameter.numel(), at::kFloat);
            parameter.copy_((torch::sin(index * 0.7 + ++number) * 0.1).view_as(parameter));
        }
    }
};
TORCH_MODULE(Model);

//[units
inline std::vector<zero::torch::Unit> units_of(Model& model) {
    std::vector<zero::torch::Unit> units{{"embedding", model->embedding}};
    for (Block& block : model->blocks) units.emplace_back(block->name(), block);
    units.emplace_back("head", model->embedding); // tied: the same tensor in two units
    return units;
}
// units]

//[forward
template <class Run> // the plain trainer calls every function directly
at::Tensor loss_of(Model& model, at::Tensor const& tokens, Run&& run) {
    at::Tensor const input = tokens.narrow(1, 0, length);
    at::Tensor x = run(0, [&] { return model->embedding(input); });
    for (std::size_t i = 0; i < depth; ++i) x = run(i + 1, [&] { return model->blocks[i](x); });
    x = run(depth + 1, [&] { return x.matmul(model->embedding->weight.t()); });
    return torch::nn::functional::cross_entropy(x.reshape({-1, vocabulary}),
                                                tokens.narrow(1, 1, length).reshape({-1}));
}
// forward]

inline at::Tensor tokens_of(int step, int rank) {
    at::Tensor const i = torch::arange(batch * (length + 1), at::kLong);
    return ((i * i + i * (3 * step + 1) + 5 * rank) % vocabulary).view({batch, length + 1});
}
