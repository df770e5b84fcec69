#pragma once

#include "../backend/tables.hpp"
#include "../ops/counter_random.hpp"
#include "../ops/exact_sum.hpp"
#include "../ops/host_device.hpp"
#include "../ops/number.hpp"
#include "../policy/master_weights.hpp"
#include "options.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace zero {

/// @brief What one step did.
struct StepReport {
    std::uint64_t serial = 0;           ///< number of this call of `step`, from 1
    std::uint64_t step_count = 0;       ///< steps that were not skipped, this one included
    bool is_skipped = false;            ///< parameters, master weights, moments and step count are unchanged by one bit
    bool has_norm = false;              ///< the gradients were inspected (clipping, a loss scaler, or `non_finite` other than `step`)
    double gradient_norm = 0.0;         ///< global, of the unscaled and averaged gradients, before clipping; infinite when one is not finite
    float clip_coefficient = 1.0F;      ///< min(1, max_norm / (norm + 1e-6))
    std::int64_t non_finite_count = 0;  ///< elements of the reduced gradients that are infinite or NaN
    std::int64_t first_non_finite = -1; ///< the first of them, counted through all parameters in registration order; -1: none
    float loss_scale = 1.0F;            ///< the one of this step
    float next_loss_scale = 1.0F;       ///< the one of the next step, which this one's overflow or success decided
};

namespace detail {

/// @brief Everything of a step that host and queues share, in the backend's memory. Only commands on the communication queue write it.
template <class Config>
struct StepState {
    static constexpr std::size_t reports_kept = 16;

    typename Config::LossScaler::Options scaler_options{};
    typename Config::LossScaler::State scaler{};
    float captured_scale = 1.0F;
    UpdateDecision decision{};
    bool is_exhausted = false; ///< the last step overflowed at the smallest loss scale
    std::uint64_t step_count = 0;
    [[no_unique_address]] typename Config::MasterWeights::Options master_options{};
    ops::Inspection inspection{};
    std::int64_t weight = 0;         ///< ReductionKind::weighted_mean: what the caller's gradients are sums over, of all ranks
    std::uint64_t last_serial = 0;   ///< of the report that was written last
    std::array<StepReport, reports_kept> reports{};
};

/// @brief Everything that scales a reduced gradient before clipping, as one factor: computed in double, rounded once where it is applied.
/// @param divisor world size times micro-steps for a mean, 1 for a sum, the sum of all weights for a weighted mean
/// @param predivide what the payload was divided by
ZERO_HOST_DEVICE inline double unscale_factor(float predivide, double divisor, float loss_scale) noexcept {
    return static_cast<double>(predivide) / ops::mul(divisor, static_cast<double>(loss_scale));
}

/// @brief One parameter group in the backend's memory.
template <class Optimizer>
struct GroupState {
    typename Optimizer::Options options{};
    double learning_rate_factor = 1.0;
    typename Optimizer::Hyper hyper{}; ///< of the current step
};

/// @name Commands on the scalars of a step. They have names, and not bodies in the class that enqueues them, because a device runs them, too.
/// @{

template <class Config>
struct CaptureScale {
    StepState<Config>* state;
    ZERO_HOST_DEVICE void operator()() const { state->captured_scale = state->scaler.scale; }
};

template <class Config>
struct ClearInspection {
    StepState<Config>* state;
    ZERO_HOST_DEVICE void operator()() const { state->inspection.clear(); }
};

/// @brief `*to = value`
template <class T>
struct Assign {
    T* to;
    T value;
    ZERO_HOST_DEVICE void operator()() const { *to = value; }
};

/// @}

/// @brief The decision of a step, as one command: factor, skip, hyper-parameters, loss scale, report. Runs on host and device.
template <class Config>
struct Decide {
    StepState<Config>* state;
    GroupState<typename Config::Optimizer>* groups;
    std::size_t group_count;
    std::uint64_t serial;
    double learning_rate;
    double divisor;  ///< world size times micro-steps for a mean, 1 for a sum; 0: the sum of weights in `state`
    float predivide; ///< what the payload was divided by
    float max_norm;  ///< infinite: no clipping
    bool is_inspected;
    bool skips_non_finite;

    ZERO_HOST_DEVICE void operator()() const {
        using Scaler = typename Config::LossScaler;
        StepState<Config>& s = *state;
        StepReport report;
        report.serial = serial;
        report.has_norm = is_inspected;
        report.loss_scale = s.captured_scale;
        double const all = divisor == 0.0 ? static_cast<double>(s.weight) : divisor;
        bool const is_empty = all == 0.0; // gradients of no sample: there is no mean
        double const base = is_empty ? 0.0 : unscale_factor(predivide, all, s.captured_scale);
        report.is_skipped = is_empty;
        double coefficient = 1.0;
        if (is_inspected) {
            report.non_finite_count = s.inspection.non_finite_count();
            bool const overflow = report.non_finite_count != 0;
            report.first_non_finite = overflow ? s.inspection.first_non_finite : -1;
            report.gradient_norm =
                overflow ? std::numeric_limits<double>::infinity() : ops::mul(ops::root(s.inspection.sum_of_squares()), base);
            double const ratio = static_cast<double>(max_norm) / ops::add(report.gradient_norm, 1e-6);
            coefficient = ratio < 1.0 ? ratio : 1.0;
            report.is_skipped = is_empty || (overflow && skips_non_finite);
            s.is_exhausted = overflow && Scaler::is_exhausted(s.scaler, s.scaler_options);
            if (overflow || !is_empty) { // a step of no sample tells nothing of the scale
                s.scaler = Scaler::next(s.scaler, overflow, s.scaler_options);
            }
        }
        report.clip_coefficient = static_cast<float>(coefficient);
        s.decision.factor = static_cast<float>(ops::mul(base, coefficient));
        s.decision.skip = report.is_skipped;
        if (!report.is_skipped) {
            ++s.step_count;
            if constexpr (Config::MasterWeights::form == MasterForm::stochastic) {
                s.decision.random_key = ops::random_key(s.master_options.seed, s.step_count);
            }
            for (std::size_t group = 0; group < group_count; ++group) {
                groups[group].hyper =
                    Config::Optimizer::hyper(groups[group].options, ops::mul(learning_rate, groups[group].learning_rate_factor), s.step_count);
            }
        }
        report.step_count = s.step_count;
        report.next_loss_scale = s.scaler.scale;
        s.last_serial = serial;
        s.reports[serial % s.reports.size()] = report;
    }
};

} // namespace detail
} // namespace zero
