// Parameters and gradients in bfloat16, float master weights, and a dynamic loss scaler that meets
// an overflow.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using zero::bfloat16;

constexpr int world = 2;
constexpr std::size_t elements = 1000;
constexpr std::size_t steps = 400;
constexpr std::size_t bad_step = 100; ///< step in which one gradient of one rank is infinite

/// The policies of mixed precision. bfloat16 has the range of float and needs no loss scaler;
/// float16 gets a dynamic one by default.
template <class MasterWeights>
using Mixed = zero::ZeroStage<2, zero::Parameters<bfloat16>, MasterWeights, zero::DynamicLossScaler,
                              zero::AdamW>;

/// Each rank pulls the weights towards its own target; together they converge to the mean.
float target(std::size_t rank, std::size_t i) {
    return std::sin(static_cast<float>(i)) + static_cast<float>(rank);
}

struct Result {
    std::vector<bfloat16> weights;
    std::size_t bytes = 0;
    std::vector<zero::StepReport> reports;
};

template <class MasterWeights>
Result train() {
    using Zero = Mixed<MasterWeights>;
    Result result;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::vector<typename Zero::Registration> const parameters{
            {.name = "weights", .elements = elements}};
        Zero engine(
            communicator, parameters,
            {.loss_scaler = {.initial_scale = 1024.0F, .growth_interval = 150, .hysteresis = 1}});
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            float const scale = engine.loss_scale(); // for this step; the engine divides by it
            for (auto const micro_step : engine.micro_steps(1)) {
                // In a variable: in stage 3 the memory is freed with the handle.
                auto const weights = engine.acquire(0);
                auto const gradients = engine.gradients(0)[0];
                for (std::size_t i = 0; i < elements; ++i) {
                    float const difference = zero::to_float(weights[0][i]) - target(rank, i);
                    gradients[i] = zero::from_float<bfloat16>(zero::to_float(gradients[i])
                                                              + scale * difference);
                }
                if (step == bad_step && rank == 1)
                    gradients[7] =
                        zero::from_float<bfloat16>(std::numeric_limits<float>::infinity());
                engine.gradients_ready(0);
            }
            auto const ticket = engine.step(0.02 * (1.0 - static_cast<double>(step) / steps));
            zero::StepReport const report = ticket.report();
            if (rank == 0) result.reports.push_back(report); // every rank has the same one
        }
        engine.for_each_full_parameter([&](std::size_t, std::span<bfloat16 const> weights) {
            if (rank == 0) result.weights.assign(weights.begin(), weights.end());
        });
        if (rank == 0) result.bytes = engine.memory_plan().model_state_bytes();
    });
    return result;
}

void print(zero::StepReport const& report) {
    std::printf("step %3llu: norm %8.4f, scale %6.0f -> %6.0f",
                static_cast<unsigned long long>(report.serial), report.gradient_norm,
                static_cast<double>(report.loss_scale),
                static_cast<double>(report.next_loss_scale));
    if (report.is_skipped)
        std::printf(", skipped: %lld gradient is not finite, number %lld",
                    static_cast<long long>(report.non_finite_count),
                    static_cast<long long>(report.first_non_finite));
    std::printf("\n");
}

float largest_error(std::vector<bfloat16> const& weights) {
    float worst = 0.0F;
    for (std::size_t i = 0; i < weights.size(); ++i)
        worst = std::fmax(
            worst, std::fabs(zero::to_float(weights[i]) - 0.5F * (target(0, i) + target(1, i))));
    return worst;
}

} // namespace

int main() {
    Result const split = train<zero::SplitMasterWeights>(),
                 copied = train<zero::MasterWeights<float>>();
    for (std::size_t const step : {std::size_t{0}, bad_step - 1, bad_step, bad_step + 1, steps - 1})
        print(split.reports[step]);
    std::printf("largest error %.4f; model states with split master weights: %zu bytes on a rank, "
                "with copied ones %zu\n",
                static_cast<double>(largest_error(split.weights)), split.bytes, copied.bytes);
    std::size_t skipped = 0;
    for (zero::StepReport const& report : split.reports) skipped += report.is_skipped ? 1 : 0;
    bool const is_same =
        split.weights.size() == elements
        && std::memcmp(split.weights.data(), copied.weights.data(), elements * sizeof(bfloat16))
               == 0;
    zero::StepReport const& bad = split.reports[bad_step];
    bool const is_right =
        is_same && skipped == 1 && bad.is_skipped && bad.first_non_finite == 7
        && bad.next_loss_scale == 512.0F && split.reports.back().step_count == steps - 1
        && split.reports.back().loss_scale == 1024.0F && largest_error(split.weights) < 0.02F;
    std::printf("%s\n", is_right ? "one step was skipped, and both keep the same bits" : "WRONG");
    return is_right ? 0 : 1;
}
