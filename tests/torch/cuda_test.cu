// Sharded and Replicated on a CUDA device. Prints "skipped" and returns 77 without one.
//
// It uses one rank, or over NCCL the processes that torchrun starts (WORLD_SIZE). Autograd has one
// thread per device and process, on which several ranks of a process that share a device would wait
// for each other.

#include <zero/cuda/backend.cuh>
#include <zero/torch/cuda.hpp>

#ifdef ZERO_TEST_NCCL
#include <zero/cuda/nccl.cuh>
#endif
#include <c10/cuda/CUDAFunctions.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <torch/torch.h>
#include <vector>

namespace {

constexpr std::int64_t width = 32;
constexpr int steps = 5;

struct ModelImpl : torch::nn::Module {
    torch::nn::Linear up{nullptr}, down{nullptr};
    ModelImpl() {
        up = register_module("up", torch::nn::Linear(width, 4 * width));
        down = register_module("down", torch::nn::Linear(4 * width, width));
        register_buffer("count", torch::ones({3}));
        torch::NoGradGuard const no_gradients;
        int number = 0;
        for (at::Tensor parameter : parameters()) {
            at::Tensor const index = torch::arange(parameter.numel(), at::kFloat);
            parameter.copy_((torch::sin(index * 0.7 + ++number) * 0.2).view_as(parameter));
        }
    }
    std::vector<zero::torch::Unit> units() { return {{"up", up}, {"down", down}}; }
};
TORCH_MODULE(Model);

/// Returns the loss of one rank's batch.
template <class Run>
at::Tensor loss_of(Model& model, int step, int rank, Run&& run) {
    at::Tensor const index = torch::arange(8 * width, at::kFloat).to(at::kCUDA);
    at::Tensor const input = torch::sin(index * (step + 1) + rank).view({8, width});
    at::Tensor x = run(0, [&] { return torch::tanh(model->up(input)); });
    x = run(1, [&] { return model->down(x); });
    return (x - input).square().mean();
}

struct Plain {
    template <class Forward>
    at::Tensor operator()(std::size_t, Forward&& forward) const {
        return forward();
    }
};

/// Trains the mean of the ranks' losses without `zero`.
std::vector<double> train_plain(int world) {
    Model model;
    model->to(at::kCUDA);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        at::Tensor loss = loss_of(model, step, 0, Plain());
        for (int rank = 1; rank < world; ++rank) {
            loss = loss + loss_of(model, step, rank, Plain());
        }
        loss = loss / world;
        loss.backward();
        optimizer.step();
        losses.push_back(loss.item<double>());
    }
    return losses;
}

template <class Communicator>
double mean_of(Communicator& communicator, at::Tensor const& loss) {
    return zero::sum_over_ranks(communicator, loss.item<double>()) / communicator.size();
}

template <int N, class Communicator>
std::vector<double> train_sharded(Communicator& communicator) {
    using Zero = zero::ZeroStage<N, Communicator>;
    Model model;
    model->to(at::kCUDA);
    std::vector<double> losses;
    zero::torch::Sharded<Zero> sharded(communicator, *model, model->units());
    for (int step = 0; step < steps; ++step) {
        sharded->begin_step();
        sharded->begin_micro_step(zero::MicroStep::last);
        at::Tensor const loss = loss_of(model, step, communicator.rank(), sharded);
        sharded.backward(loss);
        sharded->end_micro_step();
        sharded.step(0.01);
        losses.push_back(mean_of(communicator, loss));
    }
    sharded.materialize();
    sharded.shard();
    return losses;
}

template <class Communicator>
std::vector<double> train_replicated(Communicator& communicator) {
    using Zero = zero::ZeroStage<2, Communicator>;
    Model model;
    model->to(at::kCUDA);
    std::vector<double> losses;
    zero::torch::Replicated<Zero> replicated(communicator, *model);
    for (int step = 0; step < steps; ++step) {
        replicated->begin_step();
        replicated->begin_micro_step(zero::MicroStep::last);
        at::Tensor const loss = loss_of(model, step, communicator.rank(), Plain());
        replicated.backward(loss);
        replicated->end_micro_step();
        replicated.step(0.01);
        losses.push_back(mean_of(communicator, loss));
    }
    return losses;
}

/// Returns the number of failures.
template <class Communicator>
int check(Communicator& communicator) {
    std::vector<double> const plain = train_plain(communicator.size());
    std::vector<double> const first = train_sharded<1>(communicator);
    int failures = 0;
    for (std::size_t step = 0; step < plain.size(); ++step) {
        failures += std::abs(plain[step] - first[step]) < 1e-4 ? 0 : 1;
    }
    failures += plain.back() < plain.front() ? 0 : 1;
    failures += train_sharded<3>(communicator) == first ? 0 : 1;
    failures += train_replicated(communicator) == first ? 0 : 1;
    std::printf("rank %d of %d: %d failures; losses %.9g to %.9g, without zero %.9g\n",
                communicator.rank(), communicator.size(), failures, first.front(), first.back(),
                plain.back());
    return failures;
}

} // namespace

int main() try {
    if (c10::cuda::device_count() == 0) {
        std::puts("skipped: no device");
        return 77;
    }
    int failures = 0;
#ifdef ZERO_TEST_NCCL
    if (std::getenv("WORLD_SIZE") != nullptr) {
        auto communicator =
            zero::cuda::NcclCommunicator::from_environment({.order = zero::cuda::NcclOrder::rank});
        return zero::run_rank(communicator, [](auto& ready) { return check(ready); }) == 0 ? 0 : 1;
    }
#endif
    zero::run_ranks<zero::Loopback<zero::cuda::Backend>>(
        1, [&](auto& communicator) { failures = check(communicator); });
    return failures == 0 ? 0 : 1;
} catch (std::exception const& error) {
    std::printf("%s\n", error.what());
    return 1;
}
