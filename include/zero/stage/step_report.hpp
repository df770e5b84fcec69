#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The figures of a step that are numbers: a `StepReport` without its lists. Trivially
/// copyable, so that it can be in the memory of a device.
struct StepFigures {
    std::uint64_t serial = 0;     ///< number of this call of `step`, from 1
    std::uint64_t step_count = 0; ///< steps that were not skipped, this one included
    bool is_skipped = false;      ///< no bit of parameters, master weights, moments or step count
                                  ///< changed. After `skip_limit` skipped steps in a row also true
                                  ///< for a step with finite gradients
    bool is_too_large = false;    ///< `gradient_norm` is finite and above `skip_above_norm`
    std::uint32_t too_large = 0;  ///< steps that `skip_above_norm` skipped so far, this one
                                  ///< and those before a loaded checkpoint included
    std::uint64_t skipped_in_a_row = 0; ///< skipped steps since the last one that was not, this one
                                        ///< included
    bool has_gradients = true;     ///< false: no rank reported a gradient, so the step was skipped
    bool has_norm = false;         ///< the gradients were inspected: for clipping, a loss scaler,
                                   ///< `skip_above_norm`, or a `non_finite` other than `step`
    double gradient_norm = 0.0;    ///< global norm of the unscaled and averaged gradients, before
                                   ///< clipping; infinite if any is not finite
    float clip_coefficient = 1.0F; ///< min(1, max_norm / (norm + 1e-6))
    float norm_limit = std::numeric_limits<float>::infinity(); ///< of `skip_above_norm` in this
                                                               ///< step, rounded; infinite: none
    std::int64_t non_finite_count = 0;  ///< infinite or NaN elements of the reduced gradients
    std::int64_t first_non_finite = -1; ///< index of the first of them, counted through all
                                        ///< parameters in registration order; -1: none here
    std::int64_t zero_gradients = 0;    ///< elements of the reduced gradients that are 0 or -0, if
                                        ///< `ReportOptions::zero_gradients`; otherwise 0
    float loss_scale = 1.0F;            ///< loss scale of this step
    float next_loss_scale = 1.0F;       ///< loss scale of the next step, decided by this one
};

/// @brief The outcome of one step. `StepTicket::report` returns it.
///
/// The figures of the gradients describe all trainable elements of the model, each counted once,
/// before clipping. They depend on the reduced gradients alone: not on stage, partitioner, buckets
/// or the number of ranks. A skipped step has them as well: they say why it was skipped.
struct StepReport : StepFigures {
    /// The norm of each parameter group, as `gradient_norm` is, if `ReportOptions::group_norms`;
    /// otherwise empty. Infinite for a group with an element that is not finite, 0 for one without
    /// trainable elements.
    std::vector<double> group_norms{};
};

/// @brief The state of `StageOptions::skip_above_norm`, for `TrainingState::running_norm`.
struct RunningNorm {
    double mean = 0.0;           ///< the running norm; finite, not negative
    std::uint64_t steps = 0;     ///< steps that it has seen, up to `NormLimit::window`
    std::uint32_t too_large = 0; ///< as in `StepReport`
};

/// @brief Identifies one call of `step`. The engine must outlive it.
template <class Engine>
class StepTicket {
public:
    StepTicket(Engine& engine, std::uint64_t serial, typename Engine::Event done) noexcept
        : _engine(&engine), _serial(serial), _done(std::move(done)) {}

    /// @brief Waits on the host until the step is done and returns its report.
    /// @throws OutOfOrder after 16 further steps were enqueued; any exception of a command of the
    /// step or of the model
    [[nodiscard]] auto report() const { return _engine->report(_serial, _done); }

    /// @brief Waits on the host until the step is done. Unlike `report` it may be called after any
    /// number of further steps. @throws what a command of the step or of the model threw
    void wait() const { _engine->wait(_done); }

    /// @brief The event after the step on the communication queue; caller-owned queues may wait for
    /// it.
    [[nodiscard]] typename Engine::Event const& done() const noexcept { return _done; }

private:
    Engine* _engine;
    std::uint64_t _serial;
    typename Engine::Event _done;
};

} // namespace ZERO_NAMESPACE
