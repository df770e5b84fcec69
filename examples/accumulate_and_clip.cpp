// Gradient accumulation, clipping by the global norm, and the report of a step.

#include <zero/zero.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int world = 2;
constexpr std::size_t micro_steps = 4; ///< a step sees world * micro_steps samples
constexpr std::size_t elements = 1000;
constexpr std::size_t steps = 6;
constexpr float max_norm = 5.0F;
constexpr double learning_rate = 0.25;

/// One gradient of a sample. Every third step has large gradients.
float gradient(std::size_t step, std::size_t sample, std::size_t i) {
    float const size = step % 3 == 2 ? 1.0F : 0.1F;
    return size * (1.0F + std::sin(static_cast<float>(sample * elements + i)));
}

/// The norm that the step must report, in double and without the library: that of the mean over all
/// samples.
double expected_norm(std::size_t step) {
    double sum = 0.0;
    for (std::size_t i = 0; i < elements; ++i) {
        double mean = 0.0;
        for (std::size_t sample = 0; sample < world * micro_steps; ++sample)
            mean += static_cast<double>(gradient(step, sample, i)) / (world * micro_steps);
        sum += mean * mean;
    }
    return std::sqrt(sum);
}

bool is_near(double found, double expected) {
    return std::fabs(found - expected) <= 1e-5 * std::fabs(expected);
}

} // namespace

int main() {
    using Zero = zero::ZeroStage<2, zero::Sgd>;
    bool is_right = true;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::vector<Zero::Registration> const parameters{
            {.name = "first", .elements = elements - 300, .units = {0}},
            {.name = "second", .elements = 300, .units = {1}}};
        Zero engine(communicator, parameters,
                    {.gradient_clipping = max_norm,
                     .optimizer = {.momentum = 0.0},
                     .reduction = {.schedule = zero::ReductionSchedule::boundary}});
        std::vector<float> before(elements), after(elements);
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            // Each rank sums its micro-steps; the last one is followed by one reduction.
            for (auto const micro_step : engine.micro_steps(micro_steps)) {
                std::size_t const sample = rank * micro_steps + micro_step;
                for (std::size_t unit = 2; unit-- > 0;) {
                    auto const gradients = engine.gradients(unit)[unit];
                    for (std::size_t i = 0; i < gradients.size(); ++i)
                        gradients[i] += gradient(step, sample, unit * (elements - 300) + i);
                    engine.gradients_ready(unit);
                }
            }
            // Waits for the step. A fast trainer requests a report only occasionally.
            zero::StepReport const report = engine.step(learning_rate).report();
            engine.for_each_full_parameter(
                [&](std::size_t parameter, std::span<float const> values) {
                    std::copy(values.begin(), values.end(),
                              after.begin() + (parameter == 0 ? 0 : elements - 300));
                });
            double moved = 0.0;
            for (std::size_t i = 0; i < elements; ++i) {
                double const difference =
                    static_cast<double>(after[i]) - static_cast<double>(before[i]);
                moved += difference * difference;
            }
            before = after;
            if (rank != 0) continue; // every rank has the same report
            double const norm = expected_norm(step);
            double const clipped = std::min(norm, static_cast<double>(max_norm));
            bool const is_step_right =
                is_near(report.gradient_norm, norm)
                && is_near(std::sqrt(moved), learning_rate * clipped)
                && (report.clip_coefficient < 1.0F) == (norm > static_cast<double>(max_norm))
                && !report.is_skipped && report.step_count == step + 1;
            std::printf("step %llu: gradient norm %.4f, clip coefficient %.4f, the parameters "
                        "moved by %.4f%s\n",
                        static_cast<unsigned long long>(report.step_count), report.gradient_norm,
                        static_cast<double>(report.clip_coefficient), std::sqrt(moved),
                        is_step_right ? "" : ", which is WRONG");
            is_right = is_right && is_step_right;
        }
    });
    return is_right ? 0 : 1;
}
