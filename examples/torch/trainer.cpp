// A Python module that trains in C++ over a process group that Python has made; train.py builds it.

#include "language_model.hpp"

#include <zero/comm/run_ranks.hpp>

#include <ATen/Parallel.h>
#include <chrono>
#include <torch/extension.h>
#include <vector>

//[processes
using Communicator = zero::torch::ProcessGroupCommunicator;
using Zero = zero::ZeroStage<3, zero::AdamW, Communicator>;

/// Returns the mean losses of all ranks.
std::vector<double> train(c10::intrusive_ptr<c10d::Backend> const& group,
                          c10::intrusive_ptr<c10d::Store> const& store) {
    zero::torch::ProcessGroupOptions options;
    options.time_out = std::chrono::minutes(10);
    options.store = store; // through which the ranks learn why one of them failed
    Communicator communicator(group, options);
    std::vector<double> losses;
    zero::run_rank(communicator, [&](Communicator& ready) {
        torch::manual_seed(1); // each process has its own generator
        Model model;
        zero::torch::Sharded<Zero> sharded(ready, *model, units_of(model));
        for (int step = 0; step < 20; ++step) {
            sharded->begin_step();
            sharded->begin_micro_step(zero::MicroStep::last); // and the only one
            at::Tensor loss = loss_of(model, tokens_of(step, ready.rank()), sharded);
            sharded.backward(loss);
            sharded->end_micro_step();
            sharded.step(0.003);
            losses.push_back(zero::sum_over_ranks(ready, loss.item<double>()) / ready.size());
        }
    });
    return losses;
}
// processes]

//[module
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { // #include <torch/extension.h>
    module.def("train", &train, pybind11::call_guard<pybind11::gil_scoped_release>());
}
// module]
