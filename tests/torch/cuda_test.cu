// Sharded and Replicated on a CUDA device. Prints "skipped" and returns 77 without one.
//
// It uses one rank. Autograd has one thread per device and process, on which several ranks of a
// process that share a device would wait for each other.

#include <zero/cuda/backend.cuh>
#include <zero/torch/cuda.hpp>

#include <c10/cuda/CUDAFunctions.h>
#include <cmath>
#include <cstdio>
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

template <class Run>
at::Tensor loss_of(Model& model, int step, Run&& run) {
    at::Tensor const index = torch::arange(8 * width, at::kFloat).to(at::kCUDA);
    at::Tensor const input = torch::sin(index * (step + 1)).view({8, width});
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

using Communicator = zero::Loopback<zero::cuda::Backend>;

std::vector<double> train_plain() {
    Model model;
    model->to(at::kCUDA);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        at::Tensor const loss = loss_of(model, step, Plain());
        loss.backward();
        optimizer.step();
        losses.push_back(loss.item<double>());
    }
    return losses;
}

template <class Zero, class Body>
std::vector<double> train(Body const& body) {
    std::vector<double> losses;
    zero::run_ranks<Communicator>(1, [&](Communicator& communicator) {
        typename Zero::Options options;
        Model model;
        model->to(at::kCUDA);
        body(communicator, model, options, losses);
    });
    return losses;
}

template <int N>
std::vector<double> train_sharded() {
    using Zero = zero::ZeroStage<N, Communicator>;
    return train<Zero>([](auto& communicator, Model& model, auto const& options, auto& losses) {
        zero::torch::Sharded<Zero> sharded(communicator, *model, model->units(), options);
        for (int step = 0; step < steps; ++step) {
            sharded->begin_step();
            sharded->begin_micro_step(zero::MicroStep::last);
            at::Tensor const loss = loss_of(model, step, sharded);
            sharded.backward(loss);
            sharded->end_micro_step();
            sharded.step(0.01);
            losses.push_back(loss.template item<double>());
        }
        sharded.materialize();
        sharded.shard();
    });
}

std::vector<double> train_replicated() {
    using Zero = zero::ZeroStage<2, Communicator>;
    return train<Zero>([](auto& communicator, Model& model, auto const& options, auto& losses) {
        zero::torch::Replicated<Zero> replicated(communicator, *model, options);
        for (int step = 0; step < steps; ++step) {
            replicated->begin_step();
            replicated->begin_micro_step(zero::MicroStep::last);
            at::Tensor const loss = loss_of(model, step, Plain());
            replicated.backward(loss);
            replicated->end_micro_step();
            replicated.step(0.01);
            losses.push_back(loss.template item<double>());
        }
    });
}

} // namespace

int main() {
    if (c10::cuda::device_count() == 0) {
        std::puts("skipped: no device");
        return 77;
    }
    std::vector<double> const plain = train_plain();
    std::vector<double> const first = train_sharded<1>();
    int failures = 0;
    for (int step = 0; step < steps; ++step) {
        failures += std::abs(plain[step] - first[step]) < 1e-4 ? 0 : 1;
    }
    failures += plain.back() < plain.front() ? 0 : 1;
    failures += train_sharded<3>() == first ? 0 : 1;
    failures += train_replicated() == first ? 0 : 1;
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
