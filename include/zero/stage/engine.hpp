#pragma once

#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../layout/flat_layout.hpp"
#include "agreement.hpp"
#include "config.hpp"
#include "drain.hpp"
#include "gradient_reducer.hpp"
#include "handles.hpp"
#include "optimizer_shard.hpp"
#include "options.hpp"
#include "parameter_store.hpp"
#include "protocol.hpp"
#include "step_decision.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zero {

namespace detail {

/// @brief The one engine behind every stage: the protocol, its checks, and the order of the pipeline.
///
/// Everything that touches gradients after the backward pass, or writes parameters, runs on the communication queue in the order in which
/// it was enqueued; the fences are between that queue and the caller's.
template <class Config>
class Engine {
public:
    using ParameterType = typename Config::Parameter;
    using GradientType = typename Config::Gradient;
    using Communicator = typename Config::Communicator;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Registration = zero::Parameter<ParameterType, GradientType>;
    using Options = StageOptions<Config>;
    using Slice = OwnedSlice<Config>;
    using EngineType = Engine; ///< what handles refer to

    /// @brief Allocates everything and takes over the values of rank 0. `number` is that of the stage. Collective; waits for its end.
    /// @throws LayoutMismatch, CommunicatorError
    // Not inlined: g++ 12 then takes the values of empty optionals for read, and warns in the caller's code.
    [[gnu::noinline]] Engine(int number, Communicator& communicator, std::span<Registration const> parameters, Options const& options,
                             FlatLayout layout)
        : _number(number), _communicator(&communicator), _rank(static_cast<std::size_t>(communicator.rank())), _options(options),
          _memory(options.memory != nullptr ? options.memory : &Backend::default_memory()), _layout(std::move(layout)),
          _protocol(_layout, _rank), _row(stage_row(number, schedule_of(number, options))),
          _totals(count_layout(_layout, _rank, _row, options.storage, options.extra_leases)),
          _own_queue(options.communication_queue ? nullptr : std::make_unique<typename Backend::OwnedQueue>()),
          _queue(options.communication_queue ? *options.communication_queue : Backend::handle(*_own_queue)),
          _compute(options.compute_queue), _decision(_layout, _rank, _queue, parameters, _options, *_memory),
          _store(_layout, communicator, _queue, parameters, _row, options, _totals, *_memory),
          _reducer(_layout, communicator, _queue, parameters, _row, schedule_of(number, options), options, _totals, *_memory),
          _shard(_layout, _rank, _queue, _row, _store, _reducer, *_memory, options.poison), _drain(_queue) {
        guarded([&] {
            require_agreement(_layout, options_hash(), communicator, _queue, *_memory);
            _store.broadcast_initial(parameters);
            _shard.copy_parameters_to_master();
            Backend::synchronize(Backend::record(_queue));
        });
    }

    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    /// @brief Waits for what was enqueued, on the compute queue, too. Inside a step it first releases the other ranks, which would wait for this one.
    ~Engine() {
        if (_protocol.is_in_step()) {
            _communicator->abort(_protocol.rank_text() + " destroyed its engine inside a step", std::uncaught_exceptions() > 0);
        }
        Backend::synchronize(Backend::record(_compute)); // its commands use weights and gradients of the engine
    }

    /// @name The call protocol, the same for every stage
    /// @{

    /// @brief Starts a step: the loss scale that its gradients are unscaled with is the one of now.
    void begin_step() {
        _protocol.require_idle("begin_step()");
        guarded([&] { _decision.capture(_compute); });
        _reducer.begin_step();
        _protocol.begin_step();
    }

    /// @brief Starts a micro-step. `is_last` announces the last one of the step, so that its reduction can overlap with the backward pass.
    void begin_micro_step(bool is_last = false) {
        _protocol.require_may_begin_micro_step();
        _reducer.begin_micro_step(is_last);
        _store.restart_trace();
        _protocol.begin_micro_step(is_last);
    }

    /// @brief Ends a micro-step: reductions that are left are enqueued in index order. Collective.
    /// @throws UnusedParameter under UnusedParameters::error; the micro-step is still open then, over a checked communicator only to be cancelled.
    void end_micro_step() {
        _protocol.require_micro_step("end_micro_step()");
        bool const refuses_unused = _options.unused_parameters == UnusedParameters::error;
        constexpr bool compares = requires {
            requires Communicator::is_checked;
        };
        if (refuses_unused && !compares) {
            require_all_used();
        }
        guarded([&] { _reducer.end_micro_step(_compute); });
        if (refuses_unused && compares) {
            require_all_used(); // the ranks meet again only after all reductions: who lacks a parameter starts them later
        }
        _protocol.end_micro_step();
    }

    /// @brief The range that begins and ends `count` micro-steps. @throws InvalidArgument when count is 0.
    [[nodiscard]] MicroSteps<Engine> micro_steps(std::size_t count) {
        if (count == 0) {
            throw InvalidArgument("zero: micro_steps(0): a step accumulates at least one micro-step.");
        }
        return {*this, count};
    }

    /// @brief Makes a unit's parameters readable for commands on `reader` (default: the compute queue). Also outside of steps.
    /// Collective in stage 3. @throws OutOfOrder when stage 3 has no lease left.
    [[nodiscard]] Weights<Engine> acquire(std::size_t unit, std::optional<Queue> reader = {}) {
        _protocol.require_alive();
        _protocol.require_unit(unit);
        Queue const queue = reader.value_or(_compute);
        guarded([&] { _store.acquire(unit, queue); });
        return {*this, unit, queue};
    }

    /// @brief Leases the memory of a unit's gradients to commands on `writer` (default: the compute queue).
    ///
    /// It is zero the first time in a micro-step and the backward pass adds. A backward pass that writes every element itself can say
    /// `is_zeroed = false` and finds it uninitialised instead.
    /// @throws LateGradient, OutOfOrder (no lease is free); nothing was changed then.
    [[nodiscard]] Gradients<Engine> gradients(std::size_t unit, std::optional<Queue> writer = {}, bool is_zeroed = true) {
        _protocol.require_micro_step("gradients()");
        _protocol.require_not_ready(_reducer.readiness(), unit);
        guarded([&] { _reducer.acquire(unit, writer.value_or(_compute), is_zeroed); });
        return {*this, unit, _protocol.micro_step_serial()};
    }

    /// @brief Adds a transient gradient of one parameter; its memory is free for commands after the returned event.
    /// @throws InvalidArgument when the span is not as long as the parameter; LateGradient
    Event hand_over(std::size_t unit, std::size_t parameter, std::span<GradientType const> gradient, std::optional<Queue> writer = {}) {
        _protocol.require_micro_step("hand_over()");
        _protocol.require_member(unit, parameter);
        _protocol.require_not_ready(_reducer.readiness(), unit);
        _protocol.require_transient_gradient(parameter, gradient.size(), _reducer.is_in_callers_memory(parameter));
        Event done;
        guarded([&] { done = _reducer.hand_over(unit, parameter, gradient.data(), writer.value_or(_compute)); });
        return done;
    }

    /// @brief The commands on `writer` so far complete the unit's gradients of this micro-step; a second call does nothing.
    ///
    /// Enqueues the reduction of what is complete: in stages 0 to 2 every bucket up to the first incomplete one; in stage 3 those of the
    /// unit, so there it is collective.
    void gradients_ready(std::size_t unit, std::optional<Queue> writer = {}) {
        _protocol.require_micro_step("gradients_ready()");
        _protocol.require_unit(unit);
        if (!_reducer.readiness().is_unit_ready(unit)) {
            guarded([&] { _reducer.set_ready(unit, writer.value_or(_compute)); });
        }
    }

    /// @brief Ends the step: norm and overflow, decision, update and publication are enqueued. Collective.
    ///
    /// Waits on the host only under NonFinite::throw_error and AtMinimumScale::throw_error or call_back.
    /// @param learning_rate finite, not negative; times each group's factor
    /// @throws NonFiniteGradients, LossScaleExhausted: on every rank, the step changed nothing
    StepTicket<Engine> step(double learning_rate) {
        _protocol.require_may_step(learning_rate);
        _protocol.require_nothing_held(_store.is_held(), "step()");
        guarded([&] {
            _reducer.finish_step();
            _store.wait_for_readers();
            _store.drop_prefetched();
            _decision.decide(_shard, *_communicator, learning_rate, _protocol.micro_steps(), _reducer.predivide());
            for (std::size_t bucket = _layout.trainable_buckets(); bucket-- > 0;) { // in order of use by the next forward pass
                _shard.update(bucket, _decision.groups(), _decision.decision());
                _store.publish(bucket);
            }
        });
        _protocol.end_step();
        Event const done = Backend::record(_queue);
        _decision.answer_overflow(done);
        return {*this, _decision.serial(), done};
    }

    /// @brief Gives up the step after a caught error of the caller's own: gradients are dropped, parameters and states stay. On every rank,
    /// at the same point of the program: reductions that some ranks started and others did not would meet the wrong ones.
    void cancel_step() {
        _protocol.require_step("cancel_step()");
        guarded([&] {
            _reducer.cancel(_compute);
            _store.drop_prefetched();
        });
        _protocol.end_step();
    }

    /// @brief The scale of this step, to be multiplied into the loss.
    [[nodiscard]] LossScale<Backend> loss_scale() const { return _decision.loss_scale(); }

    /// @}
    /// @name Parameters and states
    /// @{

    /// @brief Calls `visit(parameter, std::span<T const>)` for every parameter on every rank, in registration order. Collective; memory
    /// for one unit at a time. Waits.
    template <class Visitor>
    void for_each_full_parameter(Visitor&& visit) {
        _protocol.require_idle("for_each_full_parameter()");
        for (std::size_t parameter = 0; parameter < _layout.parameters().size(); ++parameter) {
            std::size_t const unit = _layout.parameter(parameter).units.front();
            auto const weights = acquire(unit);
            Backend::synchronize(Backend::record(_compute));
            guarded([&] { Backend::synchronize(Backend::record(_queue)); });
            visit(parameter, weights[parameter]);
        }
    }

    /// @brief Calls `visit(OwnedSlice)` for every part of a trainable parameter that this rank updates. Waits; not collective.
    /// After a change of values call `parameters_changed`.
    template <class Visitor>
    void for_each_owned_slice(Visitor&& visit) {
        Backend::synchronize(Backend::record(_queue));
        for (std::size_t index = 0; index < _shard.slices(); ++index) {
            auto owned = _shard.owned_slice(index);
            visit(owned);
        }
    }

    /// @brief After the caller changed parameters between two steps: makes the replicas equal and refreshes the master weights. Collective, waits.
    ///
    /// Adopted, scattered and stage 0 parameters: the values of rank 0 count. Owned ones: those of the owner, changed through `for_each_owned_slice`.
    void parameters_changed() {
        _protocol.require_idle("parameters_changed()");
        _protocol.require_nothing_held(_store.is_held(), "parameters_changed()");
        guarded([&] {
            _store.wait_for_readers();
            _store.drop_prefetched();
            _store.synchronize_changes();
            _shard.copy_parameters_to_master();
            Backend::synchronize(Backend::record(_queue));
        });
    }

    /// @brief Times the learning rate given to `step`, from the next step on.
    void set_learning_rate(std::size_t group, double factor) {
        _protocol.require_alive();
        _protocol.require_group(group, _decision.group_count());
        _protocol.require_rate(factor, "learning rate factor");
        guarded([&] { _decision.set_learning_rate(group, factor); });
    }

    /// @brief Hyper-parameters of a group, from the next step on.
    void set_hyper_parameters(std::size_t group, typename Config::Optimizer::Options const& hyper) {
        _protocol.require_alive();
        _protocol.require_group(group, _decision.group_count());
        Config::Optimizer::validate(hyper);
        guarded([&] { _decision.set_hyper_parameters(group, hyper); });
    }

    /// @brief Steps that were not skipped. Waits.
    [[nodiscard]] std::uint64_t step_count() const { return _decision.settled().step_count; }

    /// @brief The loss scaler's trackers. Waits.
    [[nodiscard]] typename Config::LossScaler::State loss_scaler_state() const { return _decision.settled().scaler; }

    /// @}
    /// @name What it is made of
    /// @{

    [[nodiscard]] FlatLayout const& layout() const noexcept { return _layout; }

    /// @brief The N of `ZeroStage<N>`.
    [[nodiscard]] int stage_number() const noexcept { return _number; }

    [[nodiscard]] ReductionSchedule schedule() const noexcept { return _reducer.schedule(); }

    /// @brief Bytes of every buffer of this rank; what the memory resource handed out equals it.
    [[nodiscard]] MemoryPlan memory_plan() const noexcept {
        return plan_memory(_row, _totals, element_sizes(), _options.storage, GradientReducer<Config>::has_wire(_reducer.schedule()),
                           _decision.size_bytes());
    }

    [[nodiscard]] static constexpr ElementSizes element_sizes() noexcept {
        return {sizeof(ParameterType),
                sizeof(GradientType),
                sizeof(typename Config::Communication),
                sizeof(typename Config::Accumulation),
                MasterStore<Config>::bytes,
                StateStore<Config>::bytes,
                MasterStore<Config>::bytes_per_block,
                StateStore<Config>::bytes_per_block};
    }

    /// @}

private:
    friend class Weights<Engine>;
    friend class Gradients<Engine>;
    friend class StepTicket<Engine>;

    static ReductionSchedule schedule_of(int number, Options const& options) {
        return options.reduction.schedule.value_or(default_schedule(number));
    }

    /// What must agree besides the geometry.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        Hash hash;
        hash.add(_number).add(_reducer.schedule()).add(_options.reduction.kind).add(_options.storage).add(_options.prefetch);
        hash.add(_options.unused_parameters).add(_options.non_finite).add(_options.extra_leases);
        hash.add(static_cast<double>(_options.gradient_clipping.value_or(0.0F))).add(static_cast<double>(_reducer.predivide()));
        if constexpr (Config::master_form == MasterForm::stochastic) {
            hash.add(_options.master_weights.seed);
        }
        return hash.value();
    }

    [[nodiscard]] StepReport report(std::uint64_t serial, Event const& done) {
        Backend::synchronize(done);
        guarded([] {}); // a command that failed says so here
        return _decision.report(serial, done);
    }

    [[nodiscard]] std::span<ParameterType const> weights_of(std::size_t unit, std::size_t parameter) const {
        _protocol.require_member(unit, parameter);
        return {_store.gathered(parameter), _layout.parameter(parameter).elements};
    }

    [[nodiscard]] std::span<GradientType> gradient_of(std::size_t unit, std::size_t parameter, std::uint64_t micro_step) const {
        _protocol.require_current_gradient(_reducer.readiness(), unit, parameter, micro_step);
        auto const& spec = _layout.parameter(parameter);
        return {_reducer.gradient(parameter), spec.trainable ? spec.elements : 0};
    }

    void release(std::size_t unit, Queue reader) noexcept {
        try {
            _store.release(unit, reader);
        } catch (std::exception const& error) {
            break_down(error.what());
        }
    }

    /// Compares readiness over the ranks where the communicator is a checked one, otherwise looks at this rank only.
    void require_all_used() {
        std::vector<std::int64_t> unused{static_cast<std::int64_t>(_protocol.first_unused(_reducer.readiness()))};
        if constexpr (requires { requires Communicator::is_checked; }) {
            guarded([&] { unused = gather_on_host<std::int64_t>(*_communicator, _queue, *_memory, unused, "unused parameters"); });
        }
        _protocol.require_all_used(unused);
    }

    /// Runs what sends or enqueues. A bad argument leaves everything as it was; any other failure breaks the engine and releases the peers.
    template <class Body>
    void guarded(Body&& body) {
        try {
            Backend::rethrow_failure(_queue);
            Backend::rethrow_failure(_compute);
            body();
        } catch (OutOfOrder const&) {
            throw;
        } catch (InvalidArgument const&) {
            throw;
        } catch (std::exception const& error) {
            break_down(error.what());
            throw;
        } catch (...) {
            break_down("an exception that is no std::exception");
            throw;
        }
    }

    void break_down(char const* cause) noexcept {
        _protocol.break_down(cause);
        try {
            _communicator->abort(_protocol.rank_text() + ": " + cause);
        } catch (...) { // no memory for the text
            _communicator->abort(cause);
        }
    }

    int _number;
    Communicator* _communicator;
    std::size_t _rank;
    Options _options;
    MemoryResource* _memory;
    FlatLayout _layout;
    Protocol _protocol;
    StageRow _row;
    LayoutTotals _totals;
    std::unique_ptr<typename Backend::OwnedQueue> _own_queue;
    Queue _queue;
    Queue _compute;
    StepDecision<Config> _decision;
    ParameterStore<Config> _store;
    GradientReducer<Config> _reducer;
    OptimizerShard<Config> _shard;
    Drain<Backend> _drain;
};

} // namespace detail
} // namespace zero
