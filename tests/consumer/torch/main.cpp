// A module of LibTorch that an engine trains, in a program that found LibTorch through zero.

#include <zero/comm/run_ranks.hpp>
#include <zero/core/version.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>
#include <zero/torch/replicated.hpp>

#include <cstdio>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

int main() {
    double weight = 0.0;
    zero::run_ranks(1, [&](zero::LoopbackCommunicator& communicator) {
        torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
        torch::nn::init::constant_(linear->weight, 1.0);
        zero::torch::Replicated<zero::ZeroStage<2, zero::Sgd>> replicated(communicator, *linear);
        replicated->begin_step();
        replicated->begin_micro_step(zero::MicroStep::last);
        replicated.backward(linear->forward(torch::ones({1, 1})).sum());
        replicated->end_micro_step();
        (void)replicated.step(0.5);
        weight = linear->weight.item<double>();
    });
    if (weight != 0.5) {
        return 1;
    }
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor, zero::version_patch);
    return 0;
}
