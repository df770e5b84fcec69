// One rank of a training over gloo, as a process: torch_process <rank> <world> <file> <what>
// <transport>. Rank 1 throws in the third step, or is killed in it, if <what> says so;
// kill_after_<microseconds> kills it that long after the communicator was made. The transport is
// memory or messages. A world of 0 trains with ranks as threads. Prints a hash of the trained
// parameters, or why the training ended.

#include "gloo_group.hpp"
#include "model.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/core/hash.hpp>

#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace {

using torch_model::LanguageModel;
using torch_model::loss_of;
using torch_model::tokens_of;

constexpr int thread_ranks = 2;
constexpr std::string_view kill_after = "kill_after_";

template <class Communicator>
void train(Communicator& communicator, std::string_view what) {
    at::set_num_threads(1);
    int const rank = communicator.rank();
    LanguageModel model;
    zero::torch::Sharded<zero::ZeroStage<3, zero::AdamW, Communicator>> sharded(
        communicator, *model, model->units());
    bool const is_killed_later = what.starts_with(kill_after);
    for (int step = 0; is_killed_later || step < 5; ++step) {
        if (step == 2 && rank == 1 && what == "throw") {
            throw std::runtime_error("the data of rank 1 are damaged");
        }
        sharded->begin_step();
        sharded->begin_micro_step(zero::MicroStep::last);
        at::Tensor const loss = loss_of(model, tokens_of(step, 0, rank), sharded);
        if (step == 2 && rank == 1 && what == "kill") {
            (void)std::raise(SIGKILL);
        }
        sharded.backward(loss);
        sharded->end_micro_step();
        sharded.step(0.01);
    }
    zero::Hash hash;
    sharded->for_each_full_parameter([&](std::size_t, auto values) {
        for (float const value : values) {
            hash.add(std::bit_cast<std::uint32_t>(value));
        }
    });
    if (rank == 0) {
        std::printf("hash %016llx\n", static_cast<unsigned long long>(hash.value()));
    }
}

} // namespace

int main(int /*argc*/, char** arguments) {
    try {
        int const rank = std::atoi(arguments[1]);
        int const world = std::atoi(arguments[2]);
        std::string_view const what = arguments[4];
        if (world == 0) {
            zero::run_ranks(thread_ranks,
                            [&](zero::LoopbackCommunicator& ready) { train(ready, what); });
            return 0;
        }
        auto const store = c10::make_intrusive<c10d::FileStore>(arguments[3], world);
        auto const group = zero::test::gloo_group(store, rank, world);
        zero::torch::ProcessGroupOptions options; // waits half an hour for a peer
        options.store = store;
        options.shares_memory = std::string_view(arguments[5]) == "memory";
        zero::torch::ProcessGroupCommunicator communicator(group, options);
        if (options.shares_memory && !communicator.reason_for_messages().empty()) {
            throw std::runtime_error("messages: " + communicator.reason_for_messages());
        }
        if (rank == 1 && what.starts_with(kill_after)) {
            std::thread([moment = std::atoi(what.substr(kill_after.size()).data())] {
                std::this_thread::sleep_for(std::chrono::microseconds(moment));
                (void)std::raise(SIGKILL);
            }).detach();
        }
        zero::run_rank(communicator, [&](auto& ready) { train(ready, what); });
        return 0;
    } catch (std::exception const& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
