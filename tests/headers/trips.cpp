// The three trips that check_trips.cmake measures. `trips <trip>` trains on two ranks; what both
// execute between `begin` and `end` is all that it leaves in the files of gcov.

#include <zero/zero.hpp>

#include <barrier>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

namespace {

using namespace zero;

std::barrier all_ranks(2);

void begin(int rank) {
    all_ranks.arrive_and_wait();
    if (rank == 0) {
        __gcov_reset();
    }
    all_ranks.arrive_and_wait();
}

/// Ends the program.
void end() {
    all_ranks.arrive_and_wait(); // the other rank works no more once this one has passed
    __gcov_dump();
    std::_Exit(0);
}

template <int N>
using Stage = ZeroStage<N, Parameters<bfloat16>, DynamicLossScaler>;

template <int N>
struct Trainer {
    Stage<N> engine;
    int rank;

    explicit Trainer(LoopbackCommunicator& communicator)
        : engine(communicator, parameters(), options()), rank(communicator.rank()) {
        step(false); // the first one is not measured: it creates events and records orders
    }

    static std::vector<typename Stage<N>::Registration> parameters() {
        return {{.name = "first", .elements = 96, .units = {0}},
                {.name = "last", .elements = 96, .units = {1}}};
    }

    /// All commands run in the calls that enqueue them, so that no thread continues after a trip.
    static typename Stage<N>::Options options() {
        typename Stage<N>::Options result;
        result.gradient_clipping = 1.0F;
        result.communication_queue = HostBackend::default_compute_queue();
        return result;
    }

    void acquire(std::size_t unit) { (void)engine.acquire(unit); }

    /// @param is_measured whether the trip begins with the last gradient and ends with the step
    void step(bool is_measured) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            (void)micro_step;
            acquire(0);
            acquire(1);
            engine.gradients(1).at(0)[0] = from_float<bfloat16>(1.0F);
            engine.gradients_ready(1);
            engine.gradients(0).at(0)[0] = from_float<bfloat16>(1.0F);
            if (is_measured) {
                begin(rank);
            }
            engine.gradients_ready(0);
        }
        engine.step(1e-3);
    }
};

/// From the last gradient of a step to the updated parameters.
void gradient_to_step(LoopbackCommunicator& communicator) {
    Trainer<2> trainer(communicator);
    trainer.step(true);
    end();
}

/// The weights of a unit in stage 3.
void acquire_in_stage_3(LoopbackCommunicator& communicator) {
    Trainer<3> trainer(communicator);
    trainer.engine.begin_step();
    trainer.engine.begin_micro_step(MicroStep::last);
    begin(trainer.rank);
    trainer.acquire(0);
    end();
}

/// The next loss scale after a clean step and after an overflow, as the command of a step computes
/// it.
void loss_scale(LoopbackCommunicator& communicator) {
    using Step = detail::StepOf<
        detail::StageConfig<2, Parameters<bfloat16>, DynamicLossScaler>::EngineConfig>;
    detail::StepState<Step> state{};
    detail::StepReports reports{};
    state.reports = &reports;
    state.scaler = DynamicLossScaler::initial(state.scaler_options);
    state.captured_scale = state.scaler.scale;
    detail::GroupState<AdamW> group{};
    begin(communicator.rank());
    for (std::uint64_t const step : {1U, 2U}) {
        state.integers.inspection.first_non_finite =
            static_cast<std::int64_t>(detail::GradientEvidence::delivered);
        if (step == 2) {
            state.integers.inspection.add_non_finite(0);
        }
        detail::DecideStep<Step>{&state, &group, nullptr, step, 1e-3,  2.0, 1.0F,
                                 1.0F,   1,      true,    true, false, {},  0}();
    }
    end();
}

} // namespace

int main(int count, char** arguments) {
    std::string const trip = count == 2 ? arguments[1] : "";
    run_ranks(2, [&](LoopbackCommunicator& communicator) {
        if (trip == "gradient_to_step") {
            gradient_to_step(communicator);
        } else if (trip == "acquire_in_stage_3") {
            acquire_in_stage_3(communicator);
        } else if (trip == "loss_scale") {
            loss_scale(communicator);
        }
    });
    return 1; // no such trip
}
