#pragma once

#include "../../../backend/fence.hpp"
#include "../../../backend/update_decision.hpp"
#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/hash.hpp"
#include "../../../core/host_device.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../policy/detail/require_scale.hpp"
#include "../../../policy/dynamic_loss_scaler.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../../../policy/has_compared_options.hpp"
#include "../../../policy/loss_scaler.hpp"
#include "../../stage_options.hpp"
#include "../../step_report.hpp"
#include "../common/drain.hpp"
#include "../common/step_state.hpp"
#include "../common/stores_by_type.hpp"
#include "../optimizer/optimizer_store.hpp"
#include "decide_step.hpp"
#include "report_store.hpp"
#include "skip_watch.hpp"
#include "step_settings.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the scalars of a step in backend memory (loss scale, step count, hyper-parameters,
/// decision, reports) and enqueues every command that reads or writes them.
///
/// A member of every engine. The arithmetic of the decision is in `DecideStep`.
template <class Config>
class StepControl {
public:
    using Backend = typename Config::Backend;
    using Step = StepOf<Config>;
    using Communicator = typename Config::Communicator;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Optimizer = typename Config::Optimizer;
    using Group = GroupState<Optimizer>;
    using ScalerState = typename Config::LossScaler::State;

    [[gnu::cold]] StepControl(FlatLayout const& layout, Communicator& communicator, Queue queue,
                              StageOptions<Config> const& options, MemoryResource& memory)
        : _layout(&layout), _communicator(&communicator), _options(&options), _queue(queue),
          _settings(layout, options.groups.size()), _state(memory, 1, BufferKind::control),
          _groups(memory, _settings.group_count(), BufferKind::control),
          _guard(memory, options.skip_above_norm.is_any() ? 1 : 0, BufferKind::control),
          _counts(layout, queue, memory, options.unused_parameters == UnusedParameters::leave),
          _report(options.report, options.leaves_out_groups(), _settings.group_count(),
                  options.unused_parameters == UnusedParameters::leave, _counts.size(), memory),
          _skips(options, layout, communicator, queue, _state.data(), _report.reports()),
          _drain(queue) {
        set_initial_state();
    }

    /// @brief Fixes the loss scale of the step that begins. Commands on `reader` that were enqueued
    /// before read the previous scale, later ones read this one.
    void capture(Queue reader) {
        Backend::wait(_queue, Backend::record(reader), Fence::loss_scale_read);
        Backend::run(_queue, CaptureScale<Step>{_state.data()});
        _captured = Backend::record(_queue);
        Backend::wait(reader, *_captured, Fence::loss_scale_captured);
    }

    /// @brief Drops events. Call it between steps, once all earlier commands are ordered before all
    /// later ones.
    void forget_events() noexcept {
        _captured.reset();
        _skips.forget_events();
    }

    /// @brief The address of the last captured scale, in backend memory.
    [[nodiscard]] float const* captured_scale() const noexcept {
        return &_state.data()->captured_scale;
    }

    /// @brief Returns the last captured scale on the host. Waits for its capture.
    [[nodiscard]] float load_captured_scale() const {
        Backend::synchronise(_captured ? *_captured : Backend::record(_queue));
        rethrow_failure_of(*_communicator);
        return Backend::load(captured_scale());
    }

    /// @brief Returns whether any step may be skipped.
    [[nodiscard]] bool may_skip() const noexcept {
        return skips_non_finite() || limits_norm()
               || _options->reduction.kind == ReductionKind::weighted_mean;
    }

    /// @brief Returns whether the decision needs the norm of the gradients, or their overflow.
    [[nodiscard]] bool needs_inspection() const noexcept {
        return skips_non_finite() || _options->gradient_clipping.has_value() || limits_norm()
               || _report.is_any();
    }

    /// @brief Enqueues the reduction of norm and overflow over all ranks, which `decide` reads.
    /// Collective.
    ///
    /// The tag of its last collective contains what must be equal on all ranks, and transports
    /// compare it. Nothing else would detect a rank that makes other micro-steps, cancels a step
    /// alone, or has another learning rate.
    /// @param begun steps so far, cancelled ones included
    /// @param evidence how this rank delivered gradients
    /// @param order the order in which this rank acquired units, which is reduced with `evidence`
    /// @param used under `UnusedParameters::leave`, per parameter: had a gradient on this rank
    StepInspection inspect(StoresByType<Config, OptimizerStore> const& shard, double learning_rate,
                           std::uint64_t begun, std::size_t micro_steps,
                           std::optional<std::int64_t> weight, GradientEvidence evidence,
                           OrderEvidence const& order, std::vector<char> const& used,
                           bool is_inspected) {
        bool const is_counted = counts_once(*_communicator);
        learning_rate += 0.0; // -0 is the same rate as 0
        StepState<Step>* const state = _state.data();
        if (weight) {
            Backend::run(_queue, Assign<std::int64_t>{&state->weight,
                                                      counts_weight(*_communicator) ? *weight : 0});
            _communicator->all_reduce_integers(&state->weight, 1, IntegerReduction::sum, _queue,
                                               CollectiveTag{"weight of the step", 0});
            if constexpr (has_experts) {
                _communicator->model().all_reduce_integers(
                    &state->weight, 1, IntegerReduction::sum, _queue,
                    CollectiveTag{"weight of the step, experts", 0});
            }
        }
        _evidence = evidence;
        if constexpr (is_cut) { // a part without parameters to train learns of the others
            bool const has_none = _layout->trainable_buckets() == 0;
            _evidence = has_none ? GradientEvidence::nothing : evidence;
        }
        Backend::run(_queue, ClearInspection<Step>{state, evidence, order});
        if constexpr (is_cut) {
            if (is_inspected && is_counted) {
                shard.each(
                    [&](auto const& store) { store.inspect_left_out(&state->model.left_out); });
                Backend::run(_queue, AddLeftOut<Step>{state});
            }
        }
        auto* values = reinterpret_cast<std::int64_t*>(&state->integers);
        std::size_t sums = StepIntegers::sums;
        auto* const unused = _counts.note_unused(used, _report.figures().unused());
        std::size_t const minima =
            StepIntegers::minima(order.is_compared || !used.empty()) + used.size();
        if (_report.is_exchanged()) {
            _report.measure(_queue, shard, state, is_inspected, is_counted);
            values = _report.figures().exchanged;
            sums = _report.figures().summed();
        } else if (is_inspected && is_counted) {
            shard.each([&](auto const& store) { store.inspect(&state->integers.inspection); });
        }
        std::size_t const compared = is_mean() ? micro_steps : 0;
        CollectiveTag const tag{_rate_text.of(learning_rate, compared),
                                _settings.hash(begun, learning_rate), "", _settings.context()};
        reduce_integers(*_communicator, _queue, values, is_inspected ? sums : 0, values + sums,
                        minima, tag);
        if constexpr (is_cut) {
            CollectiveTag const over_model{
                _model_rate.of(learning_rate, compared),
                _settings.hash_over_model(begun, learning_rate,
                                          has_experts ? std::nullopt : weight),
                "", _settings.context()};
            reduce_over_model(values, is_inspected ? sums : 0, values + sums, order.is_compared,
                              over_model);
        }
        return {unused, is_inspected, order.is_compared, weight.has_value()};
    }

    /// @brief Returns what `visit(state, groups, figures)` makes of the memory that the decision
    /// reads.
    template <class Visitor>
    [[nodiscard]] auto with_figures(Visitor const& visit) const {
        return visit(_state.data(), _groups.data(), _report.figures());
    }

    /// @brief Enqueues `DecideStep` on what `inspect` reduced.
    /// @param joint what several engines decide on together; empty for one that steps alone
    template <class Joint = NotJoint>
    void decide(StepInspection const& found, double learning_rate, std::size_t micro_steps,
                float predivide, Joint const& joint = {}) {
        learning_rate += 0.0;
        StepState<Step>* const state = _state.data();
        Backend::run(
            _queue,
            DecideStep<Step, Joint>{
                state, _groups.data(), _guard.data(), ++_serial, learning_rate,
                found.is_weighted ? 0.0 : divisor(micro_steps), predivide,
                _options->gradient_clipping.value_or(std::numeric_limits<float>::infinity()),
                static_cast<std::uint32_t>(group_count()), found.is_inspected, skips_non_finite(),
                found.compares_order, _report.figures(), _options->skip_limit, joint});
        _counts.decide(state, _groups.data(), found.unused, learning_rate);
    }

    /// @brief Returns the factor that unscales and averages the reduced gradients of this step.
    /// Waits for the capture of the loss scale.
    [[nodiscard]] double gradient_factor(std::size_t micro_steps, float predivide) const {
        return unscale_factor(predivide, divisor(micro_steps), load_captured_scale());
    }

    [[nodiscard]] Group const* rows() const noexcept { return _counts.rows(_groups.data()); }
    [[nodiscard]] UpdateCounts<Config> const& counts() const noexcept { return _counts; }

    /// @brief Returns the factor of a group's gradients in the last decided step. Does not wait.
    [[nodiscard]] float factor_of_group(std::size_t group) const {
        return Backend::load(&_groups.data()[group].factor);
    }
    [[nodiscard]] std::size_t group_count() const noexcept { return _settings.group_count(); }
    [[nodiscard]] UpdateDecision const* decision() const noexcept {
        return &_state.data()->decision;
    }
    [[nodiscard]] std::uint64_t serial() const noexcept { return _serial; }
    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _state.size_bytes() + _groups.size_bytes() + _guard.size_bytes()
               + _report.size_bytes() + _counts.size_bytes();
    }

    void set_learning_rate(std::size_t group, double factor) {
        factor += 0.0; // -0 is the same as 0
        _settings.set_learning_rate_factor(group, factor);
        Backend::run(_queue, Assign<double>{&_groups.data()[group].learning_rate_factor, factor});
    }

    void set_hyper_parameters(std::size_t group, typename Optimizer::Options const& hyper) {
        _settings.set_hyper_parameters(group, hash_of_options<Optimizer>(hyper));
        Backend::run(_queue,
                     Assign<typename Optimizer::Options>{&_groups.data()[group].options, hyper});
    }

    /// @brief Sets the numbers of the engine, which ranks compare in every step.
    void set_engine(std::uint64_t number, std::uint64_t over_model) noexcept {
        _settings.set_engine(number, over_model);
    }

    void note_cancelled() { _settings.note_cancelled(); }

    /// @brief Sets what ranks compare in every step besides its settings: how it ends.
    /// @param kind "JointStep, engine 0 of 2: "; "" as by `step(learning_rate)`
    void set_kind(std::string const& kind) {
        _rate_text.set_kind(kind);
        _model_rate.set_kind(kind);
    }

    /// @brief Sets the kind of a step as long as it lives, and then that of before: an engine of a
    /// `JointStep` refuses a step of its own.
    class Kind {
    public:
        Kind(StepControl& control, char const* kind)
            : _control(&control), _before(control._rate_text.kind()) {
            control.set_kind(kind);
        }
        Kind(Kind const&) = delete;
        Kind& operator=(Kind const&) = delete;
        ~Kind() { _control->set_kind(_before); }

    private:
        StepControl* _control;
        std::string _before;
    };

    /// @brief Lets a `JointStep` end the steps, until the kind is set again.
    void set_joint(std::size_t place, std::size_t engines) {
        set_kind(text({"JointStep, engine ", place, " of ", engines, ": "}));
        _settings.name_engine();
    }

    [[nodiscard]] double learning_rate_factor(std::size_t group) const noexcept {
        return _settings.learning_rate_factor(group);
    }

    /// @brief Returns the hyper-parameters after everything that was enqueued. Waits.
    [[nodiscard]] typename Optimizer::Options hyper_parameters(std::size_t group) const {
        Backend::synchronise(Backend::record(_queue));
        return Backend::load(&_groups.data()[group].options);
    }

    void set_step_count(std::uint64_t count) {
        _settings.set_step_count(count);
        Backend::run(_queue, Assign<std::uint64_t>{&_state.data()->step_count, count});
        _counts.clear();
    }

    [[gnu::cold]] bool set_updates(std::span<std::uint64_t const> updates, MemoryResource& memory) {
        _settings.set_updates(updates);
        bool const has_minima = _options->unused_parameters == UnusedParameters::leave;
        if (has_minima && updates.size() != _counts.size()) { // some were added or removed
            _report.resize(updates.size(), memory);
        }
        return _counts.set_unequal(memory, updates, settled().step_count);
    }

    /// @brief Sets the number of steps skipped since the last one that was not.
    void set_skipped_in_a_row(std::uint64_t count) {
        ++_changes;
        count = _skips.expect_after(_serial, count);
        Backend::run(_queue, Assign<std::uint64_t>{&_state.data()->skipped_in_a_row, count});
    }

    /// @brief Returns whether `skip_above_norm` limits the norm.
    [[nodiscard]] bool limits_norm() const noexcept { return _guard.size() != 0; }

    /// @brief Returns the state of `skip_above_norm` after everything that was enqueued. Waits.
    [[nodiscard]] RunningNorm running_norm() const {
        Backend::synchronise(Backend::record(_queue));
        return Backend::load(&_guard.data()->running);
    }

    /// @brief Replaces that state. Fewer steps than `window` go on filling it.
    void set_running_norm(RunningNorm running) {
        ++_changes;
        _settings.set_running_norm(running);
        running.steps = smaller<std::uint64_t>(running.steps, _options->skip_above_norm.window);
        Backend::run(_queue, Assign<RunningNorm>{&_guard.data()->running, running});
    }

    /// @throws InvalidArgument if the scaler cannot continue from this state
    void require_valid(ScalerState const& scaler) const {
        require_scale(scaler.scale, "scale");
        if constexpr (requires {
                          Config::LossScaler::validate_state(scaler, _options->loss_scaler);
                      }) {
            Config::LossScaler::validate_state(scaler, _options->loss_scaler);
        }
    }

    void set_scaler_state(ScalerState const& scaler) {
        ++_changes;
        _settings.set_loss_scaler(hash_of(scaler));
        Backend::run(_queue, Assign<ScalerState>{&_state.data()->scaler, scaler});
    }

    /// @brief Returns a hash of all trackers of the loss scaler.
    [[nodiscard]] static std::uint64_t hash_of(ScalerState const& state) noexcept {
        Hash hash;
        if constexpr (requires(OptionHasher visit) {
                          Config::LossScaler::for_each_tracker(state, visit);
                      }) {
            Config::LossScaler::for_each_tracker(state, OptionHasher{&hash});
        } else {
            hash.add(double{state.scale});
        }
        return hash.value();
    }

    /// @brief Sets the scale alone; the rest of the scaler's state is kept.
    void set_scale(float scale) {
        ++_changes;
        _settings.set_loss_scaler(Hash().add(double{scale}).value());
        Backend::run(_queue, Assign<float>{&_state.data()->scaler.scale, scale});
    }

    /// @brief Returns how often a caller replaced a state on which the next decision depends.
    [[nodiscard]] std::uint64_t changes() const noexcept { return _changes; }

    /// @brief Returns the state after everything that was enqueued. Waits.
    [[nodiscard]] StepState<Step> settled() const {
        Backend::synchronise(Backend::record(_queue));
        return Backend::load(_state.data()); // not a command: a failed queue runs none
    }

    /// @brief Returns the report of a step. Waits for `done`. @throws OutOfOrder if it was
    /// overwritten
    [[nodiscard]] StepReport report(std::uint64_t serial, Event const& done) const {
        Backend::synchronise(done);
        Backend::rethrow_failure(_queue);
        rethrow_failure_of(*_communicator);
        // A later step that takes its place may be writing there.
        bool const is_kept = _serial - serial < StepReports::kept;
        StepFigures const found = is_kept ? _report.reports()->of(serial) : StepFigures{};
        if (found.serial != serial) {
            throw_report_overwritten(serial, StepReports::kept);
        }
        return {found, _report.norms_of(serial)};
    }

    /// @brief Returns the report of the last decided step; all zero before the first. Waits.
    [[nodiscard]] StepReport last_report() const {
        Backend::synchronise(Backend::record(_queue));
        Backend::rethrow_failure(_queue);
        StepReports& reports = *_report.reports();
        StepFigures const last = reports.of(reports.last_serial);
        return {last, last.serial == 0 ? std::vector<double>{} : _report.norms_of(last.serial)};
    }

    /// @brief Throws if no rank delivered a gradient in the last step. Waits for its decision only
    /// if this rank delivered none: then all ranks wait, or another one delivered some. A step that
    /// is captured in a graph is not checked.
    /// @param done the point after the step
    /// @throws NoGradients on every rank
    void require_gradients(Event const& done) {
        if (_evidence == GradientEvidence::nothing) {
            require_gradients_at(done);
        }
    }

    /// @brief The same at the beginning of the second step, where memory that was cleared too late
    /// or reported too early shows in the report of the first. A no-op if gradients are elsewhere.
    void require_first_gradients(Queue compute) {
        if (_evidence == GradientEvidence::doubtful && _serial == 1) {
            require_gradients_at(Backend::record(compute));
        }
    }

    /// @brief Returns the watch over steps that are skipped in a row.
    [[nodiscard]] SkipWatch<Config>& skips() noexcept { return _skips; }

    /// @brief Waits for the decision and throws or calls back, if an option asks for it:
    /// `non_finite` or `at_minimum` of the loss scaler. A no-op under the other options.
    void answer_overflow(Event const& done) const {
        bool const throws =
            !Config::LossScaler::skips_overflow && _options->non_finite == NonFinite::throw_error;
        bool answers_minimum = false;
        if constexpr (has_minimum) {
            answers_minimum = _options->loss_scaler.at_minimum != AtMinimumScale::hold;
        }
        if (!throws && !answers_minimum) {
            return;
        }
        StepReport const last = report(_serial, done);
        if (throws && last.non_finite_count != 0) { // not is_skipped: an empty step is skipped
            throw_non_finite(*_layout, last, _communicator->rank());
        }
        if constexpr (has_minimum) {
            if (answers_minimum && settled().is_exhausted) {
                if (_options->loss_scaler.at_minimum == AtMinimumScale::call_back) {
                    _options->loss_scaler.on_minimum(_options->loss_scaler.context);
                } else {
                    throw_exhausted(*_layout, last, _communicator->rank());
                }
            }
        }
    }

    /// @throws InvalidArgument if a group's learning rate is infinite as a float
    void require_finite_rates(double learning_rate) const {
        _settings.require_finite_rates(learning_rate, _communicator->rank());
    }

private:
    static constexpr bool is_cut = ModelParallelCommunicator<Communicator>;
    static constexpr bool has_experts = ExpertCommunicator<Communicator>;

    struct NoRate {
        explicit NoRate(char const* /*between*/) noexcept {}
        void set_kind(std::string const& /*kind*/) noexcept {}
    };

    /// Reduces the integers of the data ranks over the parts of a model that is cut.
    void reduce_over_model(std::int64_t* values, std::size_t sums, std::int64_t* minima,
                           bool compares_order, CollectiveTag const& tag) {
        if (_communicator->model().size() != 1) {
            StepState<Step>* const state = _state.data();
            Backend::run(_queue, PackForModel<Step>{state, minima, compares_order});
            reduce_integers(_communicator->model(), _queue, values, sums, minima,
                            PackForModel<Step>::count, tag);
            Backend::run(_queue, UnpackFromModel<Step>{state, minima});
        }
    }

    /// Waits for the last step and throws if it had no gradients. A no-op if `now`, a point after
    /// the step, is part of a graph.
    void require_gradients_at(Event const& now) {
        if constexpr (requires { now.is_captured(); }) {
            if (now.is_captured()) {
                return;
            }
        }
        bool const is_zero =
            std::exchange(_evidence, GradientEvidence::delivered) == GradientEvidence::doubtful;
        if (!report(_serial, Backend::record(_queue)).has_gradients) {
            throw_no_gradients(is_zero, _options->backward_call, _communicator->rank());
        }
    }

    [[nodiscard]] bool skips_non_finite() const noexcept {
        return Config::LossScaler::skips_overflow || _options->non_finite != NonFinite::step;
    }

    /// Whether the factor contains the number of micro-steps.
    [[nodiscard]] bool is_mean() const noexcept {
        return _options->reduction.kind == ReductionKind::mean;
    }

    [[nodiscard]] double divisor(std::size_t micro_steps) const noexcept {
        ReductionKind const kind = _options->reduction.kind;
        double const ranks = kind == ReductionKind::mean || kind == ReductionKind::mean_over_ranks
                                 ? static_cast<double>(data_size_of(*_communicator))
                                 : 1.0;
        return is_mean() ? ranks * static_cast<double>(micro_steps) : ranks;
    }

    static constexpr bool has_minimum =
        requires(typename Config::LossScaler::Options options) { options.at_minimum; };

    [[gnu::cold]] void set_initial_state() {
        auto const groups = initial_groups<Group>(*_options, group_count());
        StepState<Step> state;
        Drain<Backend> const drain(_queue); // commands use both, even after a throw
        state.scaler_options = _options->loss_scaler;
        state.master_options = _options->master_weights;
        state.scaler = Config::LossScaler::initial(_options->loss_scaler);
        state.captured_scale = state.scaler.scale;
        state.reports = _report.reports();
        Backend::copy_bytes(_queue, _state.data(), &state, sizeof(state));
        for (std::size_t group = 0; group < group_count(); ++group) {
            _settings.set_initial_factor(group, groups[group].learning_rate_factor);
        }
        Backend::copy_bytes(_queue, _groups.data(), groups.data(), _groups.size_bytes());
        NormGuard guard;
        constexpr float none = std::numeric_limits<float>::infinity();
        guard.limit = static_cast<double>(_options->skip_above_norm.limit.value_or(none));
        guard.factor = static_cast<double>(_options->skip_above_norm.factor.value_or(none));
        guard.window = _options->skip_above_norm.window;
        if (limits_norm()) {
            Backend::copy_bytes(_queue, _guard.data(), &guard, sizeof(guard));
        }
        Backend::synchronise(Backend::record(_queue));
    }

    FlatLayout const* _layout;
    Communicator* _communicator;
    StageOptions<Config> const* _options;
    Queue _queue;
    StepSettings _settings;
    Buffer<StepState<Step>> _state;
    Buffer<Group> _groups;
    Buffer<NormGuard> _guard; ///< empty without `skip_above_norm`
    UpdateCounts<Config> _counts;
    ReportStore<Config> _report;
    SkipWatch<Config> _skips;
    std::optional<Event> _captured; ///< empty at first and after `forget_events`
    RateText _rate_text;
    [[no_unique_address]] std::conditional_t<is_cut, RateText, NoRate> _model_rate{"model ranks: "};
    std::uint64_t _serial = 0;
    std::uint64_t _changes = 0;
    GradientEvidence _evidence = GradientEvidence::delivered; ///< evidence of the last step
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
