// Trains a small language model in LibTorch with stages 1, 2 and 3 on two ranks, which are threads,
// and compares the losses with those of torch::optim::AdamW on the batches of both ranks. Stage 2
// runs twice: with sharded and with whole modules. Needs LibTorch (-DZERO_TORCH=...).
// torch/train.py trains the same model in processes started by torchrun.

#include "torch/language_model.hpp"

#include <zero/torch.hpp>

#include <ATen/Parallel.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <torch/torch.h>
#include <vector>

constexpr int rank_count = 2, steps = 20;
constexpr double learning_rate = 0.003;

std::vector<double> train_plain() {
    Model model;
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(learning_rate));
    auto const run = [](std::size_t, auto&& forward) { return forward(); };
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        at::Tensor loss = torch::zeros({});
        for (int rank = 0; rank < rank_count; ++rank) {
            loss = loss + loss_of(model, tokens_of(step, rank), run) / rank_count;
        }
        loss.backward();
        optimizer.step();
        losses.push_back(loss.item<double>());
    }
    return losses;
}

template <class Zero>
std::vector<double> train(char const* name) {
    std::vector<double> losses; // means over the ranks; rank 0 writes them
    //[train
    torch::manual_seed(1);
    std::vector<Model> models(rank_count); // here, because the threads share one generator
    zero::run_ranks(rank_count, [&](zero::LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Model& model = models[static_cast<std::size_t>(communicator.rank())];
        zero::torch::Sharded<Zero> sharded(communicator, *model, units_of(model));
        for (int step = 0; step < steps; ++step) {
            sharded->begin_step();
            sharded->begin_micro_step(zero::MicroStep::last); // and the only one
            at::Tensor loss = loss_of(model, tokens_of(step, communicator.rank()), sharded);
            sharded.backward(loss); // instead of loss.backward()
            sharded->end_micro_step();
            sharded.step(learning_rate); // instead of optimizer.step()
            double const mean =
                zero::sum_over_ranks(communicator, loss.item<double>()) / rank_count;
            // train]
            if (communicator.rank() == 0) losses.push_back(mean);
        }
        if (communicator.rank() == 0) {
            std::printf("%s: model states %zu bytes on rank 0, all memory of the engine %zu\n",
                        name, sharded->memory_plan().model_state_bytes(),
                        sharded->memory_plan().engine_bytes());
        }
    });
    return losses;
}

template <class Zero>
std::vector<double> train_whole() {
    std::vector<double> losses; // means over the ranks; rank 0 writes them
    auto const plain = [](std::size_t, auto&& forward) { return forward(); };
    //[replicated
    torch::manual_seed(1);
    std::vector<Model> models(rank_count); // here, because the threads share one generator
    zero::run_ranks(rank_count, [&](zero::LoopbackCommunicator& communicator) {
        at::set_num_threads(1);
        Model& model = models[static_cast<std::size_t>(communicator.rank())];
        zero::torch::Replicated<Zero> replicated(communicator, *model);
        for (int step = 0; step < steps; ++step) {
            replicated->begin_step();
            replicated->begin_micro_step(zero::MicroStep::last); // and the only one
            at::Tensor loss = loss_of(model, tokens_of(step, communicator.rank()), plain);
            replicated.backward(loss); // instead of loss.backward()
            replicated->end_micro_step();
            replicated.step(learning_rate); // instead of optimizer.step()
            double const mean =
                zero::sum_over_ranks(communicator, loss.item<double>()) / rank_count;
            // replicated]
            if (communicator.rank() == 0) losses.push_back(mean);
        }
    });
    return losses;
}

int main() {
    at::set_num_threads(1);
    std::vector<double> const plain = train_plain();
    std::size_t elements = 0;
    for (at::Tensor const& parameter : Model()->parameters()) {
        elements += static_cast<std::size_t>(parameter.numel());
    }
    std::printf("plain trainer: model states %zu bytes\n", 16 * elements);
    std::vector<double> const first = train<zero::ZeroStage<1>>("stage 1");
    bool const is_equal = train<zero::ZeroStage<2>>("stage 2") == first
                          && train<zero::ZeroStage<3>>("stage 3") == first
                          && train_whole<zero::ZeroStage<2>>() == first;
    double difference = 0.0;
    for (std::size_t step = 0; step < steps; ++step) {
        difference = std::max(difference, std::abs(first[step] - plain[step]));
    }
    bool const is_close = difference < 1e-4 && first.back() < first.front();
    std::printf("loss %.6f, at first %.6f\n", first.back(), first.front());
    std::printf("as the plain trainer within 1e-4: %s; stages equal: %s\n", is_close ? "yes" : "NO",
                is_equal ? "yes" : "NO");
    return is_close && is_equal ? 0 : 1;
}
