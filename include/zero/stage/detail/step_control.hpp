#pragma once

#include "../../backend/fence.hpp"
#include "../../backend/update_decision.hpp"
#include "../../comm/communicator.hpp"
#include "../../comm/detail/wait_for_collectives.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../policy/detail/hash_of_options.hpp"
#include "../../policy/detail/require_scale.hpp"
#include "../../policy/dynamic_loss_scaler.hpp"
#include "../../policy/gradient_reduction.hpp"
#include "../stage_options.hpp"
#include "../step_report.hpp"
#include "decide_step.hpp"
#include "drain.hpp"
#include "optimizer_shard.hpp"
#include "step_state.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief How a step is decided, and what it leaves: the scalars of a step in the backend's memory,
/// and every command that writes them.
template <class Config>
class StepControl {
public:
    using Backend = typename Config::Backend;
    using Communicator = typename Config::Communicator;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Optimizer = typename Config::Optimizer;
    using Group = GroupState<Optimizer>;
    using ScalerState = typename Config::LossScaler::State;

    StepControl(FlatLayout const& layout, Communicator& communicator, Queue queue,
                StageOptions<Config> const& options, MemoryResource& memory)
        : _layout(&layout), _communicator(&communicator), _options(&options), _queue(queue),
          _group_count(count_groups(layout, options)), _settings(2 * _group_count + 1),
          _state(memory, 1, BufferKind::control),
          _groups(memory, _group_count, BufferKind::control), _drain(queue) {
        set_initial_state();
    }

    /// @brief The scale of the step that begins; the commands on `reader` so far read the previous
    /// one, those to come read this one.
    void capture(Queue reader) {
        Backend::wait(_queue, Backend::record(reader), Fence::loss_scale_read);
        Backend::run(_queue, CaptureScale<Config>{_state.data()});
        _captured = Backend::record(_queue);
        Backend::wait(reader, *_captured, Fence::loss_scale_captured);
    }

    /// @brief Between steps: all that was enqueued is ordered before all that comes.
    void forget_events() noexcept { _captured.reset(); }

    /// @brief The scale that was captured last, in the backend's memory.
    [[nodiscard]] float const* captured_scale() const noexcept {
        return &_state.data()->captured_scale;
    }

    /// @brief The same on the host. Waits for its capture.
    [[nodiscard]] float load_captured_scale() const {
        Backend::synchronise(_captured ? *_captured : Backend::record(_queue));
        rethrow_failure_of(*_communicator);
        return Backend::load(captured_scale());
    }

    /// @brief Norm and overflow of all ranks, then factor, skip, hyper-parameters, next scale and
    /// report. Collective.
    ///
    /// What ranks may not do differently is in the tags of its collectives, which transports
    /// compare: nothing else would meet a rank that makes other micro-steps, cancels a step alone,
    /// or has another learning rate.
    /// @param begun steps so far, cancelled ones included
    void decide(OptimizerShard<Config> const& shard, double learning_rate, std::uint64_t begun,
                std::size_t micro_steps, std::optional<std::int64_t> weight, float predivide) {
        bool const skips =
            Config::LossScaler::skips_overflow || _options->non_finite != NonFinite::step;
        bool const is_inspected = skips || _options->gradient_clipping.has_value();
        StepState<Config>* const state = _state.data();
        if (weight) {
            Backend::run(_queue, Assign<std::int64_t>{&state->weight, *weight});
            _communicator->all_reduce_integers(&state->weight, 1, IntegerReduction::sum, _queue,
                                               CollectiveTag{"weight of the step", 0});
        }
        if (is_inspected) {
            Backend::run(_queue, ClearInspection<Config>{state});
            shard.inspect(&state->inspection);
            _communicator->all_reduce_integers(
                state->inspection.sums, std::size(state->inspection.sums), IntegerReduction::sum,
                _queue,
                is_mean() ? CollectiveTag{"gradient norm after micro-steps:", micro_steps}
                          : CollectiveTag{"gradient norm", 0});
            _communicator->all_reduce_integers(
                &state->inspection.first_non_finite, 1, IntegerReduction::min, _queue,
                CollectiveTag{"steps, rate and settings as hash",
                              hash_of_settings(begun, learning_rate)});
        }
        Backend::run(_queue, DecideStep<Config>{state, _groups.data(), _group_count, ++_serial,
                                                learning_rate, weight ? 0.0 : divisor(micro_steps),
                                                predivide,
                                                _options->gradient_clipping.value_or(
                                                    std::numeric_limits<float>::infinity()),
                                                is_inspected, skips});
    }

    /// @brief What a reduced gradient of this step is multiplied by. Waits for the capture of the
    /// loss scale.
    [[nodiscard]] double gradient_factor(std::size_t micro_steps, float predivide) const {
        return unscale_factor(predivide, divisor(micro_steps), load_captured_scale());
    }

    [[nodiscard]] Group const* groups() const noexcept { return _groups.data(); }
    [[nodiscard]] std::size_t group_count() const noexcept { return _group_count; }
    [[nodiscard]] UpdateDecision const* decision() const noexcept {
        return &_state.data()->decision;
    }
    [[nodiscard]] std::uint64_t serial() const noexcept { return _serial; }
    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _state.size_bytes() + _groups.size_bytes();
    }

    void set_learning_rate(std::size_t group, double factor) {
        _settings[2 * group] = std::bit_cast<std::uint64_t>(factor);
        Backend::run(_queue, Assign<double>{&_groups.data()[group].learning_rate_factor, factor});
    }

    void set_hyper_parameters(std::size_t group, typename Optimizer::Options const& hyper) {
        _settings[2 * group + 1] = hash_of_options<Optimizer>(hyper);
        Backend::run(_queue,
                     Assign<typename Optimizer::Options>{&_groups.data()[group].options, hyper});
    }

    /// @throws InvalidArgument when the scaler cannot go on from this state
    void require_valid(ScalerState const& scaler) const {
        require_scale(scaler.scale, "scale");
        if constexpr (requires {
                          Config::LossScaler::validate_state(scaler, _options->loss_scaler);
                      }) {
            Config::LossScaler::validate_state(scaler, _options->loss_scaler);
        }
    }

    /// @brief The state that the scaler begins with, but at another scale.
    [[nodiscard]] ScalerState initial_with(float scale) const {
        ScalerState scaler = Config::LossScaler::initial(_options->loss_scaler);
        scaler.scale = scale;
        return scaler;
    }

    void set_scaler_state(ScalerState const& scaler) {
        note_scale(scaler.scale);
        Backend::run(_queue, Assign<ScalerState>{&_state.data()->scaler, scaler});
    }

    /// @brief The scale alone.
    void set_scale(float scale) {
        note_scale(scale);
        Backend::run(_queue, Assign<float>{&_state.data()->scaler.scale, scale});
    }

    /// @brief The state after everything that was enqueued. Waits.
    [[nodiscard]] StepState<Config> settled() const {
        Backend::synchronise(Backend::record(_queue));
        return Backend::load(
            _state.data()); // not by a command: after a failure the queue runs none
    }

    /// @brief What the step with this serial did. Waits for `done`. @throws OutOfOrder when it was
    /// overwritten
    [[nodiscard]] StepReport report(std::uint64_t serial, Event const& done) const {
        Backend::synchronise(done);
        Backend::rethrow_failure(_queue);
        rethrow_failure_of(*_communicator);
        StepReport const found =
            Backend::load(&_state.data()->reports[serial % StepState<Config>::reports_kept]);
        if (found.serial != serial) {
            throw_error<OutOfOrder>(
                {"zero: the report of step ", serial, " was overwritten; read it before ",
                 StepState<Config>::reports_kept, " further steps are enqueued."});
        }
        return found;
    }

    /// @brief What the last step did whose decision ran; all zero before the first. Waits.
    [[nodiscard]] StepReport last_report() const {
        StepState<Config> const state = settled();
        Backend::rethrow_failure(_queue);
        return state.reports[state.last_serial % StepState<Config>::reports_kept];
    }

    /// @brief The options under which the host has to know how the step was decided: waits and
    /// throws, or calls back.
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
        if (throws && last.non_finite_count != 0) { // a step of no sample is skipped, too
            throw_error<NonFiniteGradients>(
                {"zero: ", last.non_finite_count, " gradients are infinite or NaN, the first is ",
                 locate(last.first_non_finite), "; the step changed nothing (rank ",
                 _communicator->rank(), ")."});
        }
        if constexpr (has_minimum) {
            if (!answers_minimum || !settled().is_exhausted) {
                return;
            }
            if (_options->loss_scaler.at_minimum == AtMinimumScale::call_back) {
                _options->loss_scaler.on_minimum(_options->loss_scaler.context);
            } else {
                throw_error<LossScaleExhausted>(
                    {"zero: the gradients overflowed at the smallest loss scale ", last.loss_scale,
                     ", first in ", locate(last.first_non_finite),
                     "; the step changed nothing (rank ", _communicator->rank(), ")."});
            }
        }
    }

private:
    [[nodiscard]] bool is_mean() const noexcept {
        return _options->reduction.kind == ReductionKind::mean;
    }

    void note_scale(float scale) noexcept {
        _settings[2 * _group_count] = std::bit_cast<std::uint32_t>(scale);
    }

    [[nodiscard]] std::uint64_t hash_of_settings(std::uint64_t begun,
                                                 double learning_rate) const noexcept {
        Hash hash;
        hash.add(begun).add(learning_rate);
        for (std::uint64_t const setting : _settings) {
            hash.add(setting);
        }
        return hash.value();
    }

    [[nodiscard]] double divisor(std::size_t micro_steps) const noexcept {
        return is_mean() ? static_cast<double>(_layout->world()) * static_cast<double>(micro_steps)
                         : 1.0;
    }

    static constexpr bool has_minimum =
        requires(typename Config::LossScaler::Options options) { options.at_minimum; };

    static std::size_t count_groups(FlatLayout const& layout, StageOptions<Config> const& options) {
        std::size_t count = options.groups.size();
        for (auto const& parameter : layout.parameters()) {
            count = parameter.group >= count ? parameter.group + 1 : count;
        }
        return count == 0 ? 1 : count;
    }

    [[gnu::cold]] void set_initial_state() {
        List<GroupState<Optimizer>> groups(_group_count);
        StepState<Config> state;
        Drain<Backend> const drain(_queue); // commands use both, also when something is thrown
        state.scaler_options = _options->loss_scaler;
        state.master_options = _options->master_weights;
        state.scaler = Config::LossScaler::initial(_options->loss_scaler);
        state.captured_scale = state.scaler.scale;
        Backend::copy_bytes(_queue, _state.data(), &state, sizeof(state));
        for (std::size_t group = 0; group < _group_count; ++group) {
            bool const is_listed = group < _options->groups.size();
            groups[group].options =
                is_listed ? _options->groups[group].optimizer : _options->optimizer;
            groups[group].learning_rate_factor =
                is_listed ? _options->groups[group].learning_rate_factor : 1.0;
        }
        Backend::copy_bytes(_queue, _groups.data(), groups.data(), _groups.size_bytes());
        Backend::synchronise(Backend::record(_queue));
    }

    [[nodiscard]] std::string locate(std::int64_t element) const {
        auto const index = static_cast<std::size_t>(element);
        for (std::size_t parameter = 0; parameter < _layout->parameters().size(); ++parameter) {
            auto const& spec = _layout->parameter(parameter);
            if (index >= _layout->first_element(parameter)
                && index - _layout->first_element(parameter) < spec.elements) {
                return text({"element ", index - _layout->first_element(parameter),
                             " of parameter '", spec.name, "'"});
            }
        }
        return text({"element ", element});
    }

    FlatLayout const* _layout;
    Communicator* _communicator;
    StageOptions<Config> const* _options;
    Queue _queue;
    std::size_t _group_count;
    List<std::uint64_t>
        _settings; ///< what was set since the construction: two for each group, and the scale
    Buffer<StepState<Config>> _state;
    Buffer<Group> _groups;
    std::optional<Event> _captured; ///< none at first and after `forget_events`
    std::uint64_t _serial = 0;
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
