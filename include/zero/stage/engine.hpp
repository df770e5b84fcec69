#pragma once

#include "../backend/fence.hpp"
#include "../backend/update_decision.hpp"
#include "../comm/detail/wait_for_collectives.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../layout/flat_layout.hpp"
#include "../layout/make_layout.hpp"
#include "../layout/memory_plan.hpp"
#include "../layout/placement.hpp"
#include "../ops/arithmetic.hpp"
#include "../ops/norm.hpp"
#include "../policy/gradient_reduction.hpp"
#include "../policy/no_loss_scaler.hpp"
#include "../policy/predivide_factor.hpp"
#include "detail/agreement.hpp"
#include "detail/compared_options.hpp"
#include "detail/drain.hpp"
#include "detail/engine_context.hpp"
#include "detail/gather_on_host.hpp"
#include "detail/gradient_norms.hpp"
#include "detail/gradient_scheduler.hpp"
#include "detail/gradient_store.hpp"
#include "detail/optimizer_shard.hpp"
#include "detail/optimizer_state_store.hpp"
#include "detail/parameter_scheduler.hpp"
#include "detail/protocol.hpp"
#include "detail/ready_order_recorder.hpp"
#include "detail/rebuild_request.hpp"
#include "detail/step_control.hpp"
#include "detail/updated_range.hpp"
#include "detail/visit_tuple.hpp"
#include "gradients.hpp"
#include "loss_scale.hpp"
#include "micro_steps.hpp"
#include "norm_scope.hpp"
#include "parameter.hpp"
#include "stage_options.hpp"
#include "step_report.hpp"
#include "step_ticket.hpp"
#include "weights.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE {

namespace detail {
template <class Config>
class EngineRebuild;
} // namespace detail

/// @brief The one engine behind every stage: the protocol, its checks, and the order of the
/// pipeline.
///
/// Everything that touches gradients after the backward pass, or writes parameters, runs on the
/// communication queue in the order in which it was enqueued; the fences are between that queue and
/// the caller's.
template <class Config>
class Engine {
public:
    using ParameterType = typename Config::Parameter;   ///< the first, where there are several
    using GradientType = typename Config::Gradient;     ///< of parameters of that type
    using Communicator = typename Config::Communicator; ///< the one that the policies name
    using Backend = typename Config::Backend;           ///< that of the communicator
    using Queue = typename Backend::Queue;              ///< what the model runs on, too
    using Event = typename Backend::Event;              ///< a point in a queue
    using Options = StageOptions<Config>;
    static constexpr std::size_t parameter_types = Config::types; ///< how many the model has
    /// What a parameter is registered as: of the one type, or of any when there are several.
    using Registration =
        std::conditional_t<parameter_types == 1, zero::Parameter<ParameterType, GradientType>,
                           AnyParameter>;
    using EngineType = Engine; ///< what handles refer to

    /// Makes the geometry; checks the options and parameters that it is made of.
    using LayoutMaker = FlatLayout (*)(int stage, std::size_t world, std::span<AnyParameter const>,
                                       Options const&, std::span<std::size_t const> unit_order);

    /// @brief Allocates everything and takes over the values of rank 0. `number` is that of the
    /// stage. Collective; waits for its end.
    /// @throws InvalidArgument (nothing was sent), LayoutMismatch, CommunicatorError; what
    /// `Parameter::initialise` threw, and then the other ranks get Aborted
    // Not inlined: g++ 12 then takes the values of empty optionals for read, and warns in the
    // caller's code.
    [[gnu::noinline]] Engine(int number, Communicator& communicator,
                             std::span<AnyParameter const> parameters, Options const& options,
                             LayoutMaker make_layout)
        : _number(number), _communicator(&communicator),
          _rank(static_cast<std::size_t>(communicator.rank())), _options(options),
          _memory(options.memory != nullptr ? options.memory : &Backend::default_memory()),
          _make_layout(make_layout),
          _layout(make_layout(number, static_cast<std::size_t>(communicator.size()), parameters,
                              options, {})),
          _order(_layout.units(), options.rebuild_buckets != nullptr), _protocol(_layout, _rank),
          _schedule(options.reduction.schedule.value_or(default_schedule(number))),
          _own_queue(options.communication_queue
                         ? nullptr
                         : std::make_unique<typename Backend::OwnedQueue>()),
          _queue(options.communication_queue ? usable(*options.communication_queue)
                                             : Backend::handle(*_own_queue)),
          _compute(usable(options.compute_queue)),
          _decision(_layout, communicator, _queue, _options, *_memory), _store(context(parameters)),
          _reducer(context(parameters)), _shard(context(parameters), _store, _reducer),
          _drain(_queue) {
        if constexpr (requires { Backend::require_arithmetic(_queue); }) {
            Backend::rethrow_failure(_compute); // refuses a missing stream, too
            Backend::require_arithmetic(_queue);
        }
        guarded([&] {
            detail::require_agreement(
                _layout, Config::parameter_dtypes,
                detail::compared_options(_number, _schedule, predivide(), _options, communicator),
                communicator, _queue, *_memory);
            _store.broadcast_initial(parameters);
            _shard.copy_parameters_to_master();
            detail::wait_for_collectives(*_communicator, _queue);
        });
    }

    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    /// @brief Waits for what was enqueued, on the compute queue, too. Inside a step it first
    /// releases the other ranks, which would wait for this one.
    ~Engine() {
        if (_protocol.is_in_step()) {
            _communicator->abort(
                detail::text({_protocol.rank_text(), " destroyed its engine inside a step"}),
                std::uncaught_exceptions() > 0);
        }
        detail::drain<Backend>(
            _compute, _before_capture); // its commands use weights and gradients of the engine
    }

    /// @name The call protocol, the same for every stage
    /// @{

    /// @brief Starts a step: the loss scale that its gradients are unscaled with is the one of now.
    void begin_step() {
        _protocol.require_idle("begin_step()");
        guarded([&] { _decision.capture(_compute); });
        _reducer.begin_step();
        _order.begin_step();
        _protocol.begin_step();
    }

    /// @brief Starts a micro-step. `is_last` announces the last one of the step, so that its
    /// reduction can overlap with the backward pass.
    void begin_micro_step(bool is_last = false) {
        _protocol.require_may_begin_micro_step();
        _reducer.begin_micro_step(is_last);
        _store.begin_trace();
        _protocol.begin_micro_step(is_last);
    }

    /// @brief Ends a micro-step: reductions that are left are enqueued in index order. Collective.
    /// @throws UnusedParameter under UnusedParameters::error; the micro-step is still open then,
    /// over a checked communicator only to be cancelled.
    void end_micro_step() {
        _protocol.require_micro_step("end_micro_step()");
        bool const refuses_unused = _options.unused_parameters == UnusedParameters::error;
        constexpr bool compares = requires { requires Communicator::is_checked; };
        if (refuses_unused && !compares) {
            require_all_used();
        }
        guarded([&] { _reducer.end_micro_step(_compute); });
        if (refuses_unused && compares) {
            require_all_used(); // the ranks meet again only after all reductions: who lacks a
                                // parameter starts them later
        }
        _store.end_trace();
        _protocol.end_micro_step();
    }

    /// @brief The range that begins and ends `count` micro-steps. @throws InvalidArgument when
    /// count is 0.
    [[nodiscard]] MicroSteps<Engine> micro_steps(std::size_t count) {
        if (count == 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: micro_steps(0): a step accumulates at least one micro-step."});
        }
        return {*this, count};
    }

    /// @brief Makes a unit's parameters readable for commands on `reader` (default: the compute
    /// queue). Also outside of steps. Collective in stage 3. @throws OutOfOrder when stage 3 has no
    /// lease left.
    [[nodiscard]] Weights<Engine> acquire(std::size_t unit, std::optional<Queue> reader = {}) {
        _protocol.require_alive();
        _protocol.require_unit(unit);
        Queue const queue = usable(reader.value_or(_compute));
        leasing([&] { _store.acquire(unit, queue); });
        return {*this, unit, queue};
    }

    /// @brief Leases the memory of a unit's gradients to commands on `writer` (default: the compute
    /// queue), which outlives the micro-step.
    ///
    /// Units that share a parameter may write from different queues: commands enqueued after
    /// `gradients` come behind those that other units reported. It is zero the first time in a
    /// micro-step and the backward pass adds. A backward pass that writes every element itself can
    /// say `is_zeroed = false` and finds it uninitialised instead.
    /// @throws LateGradient, OutOfOrder (no lease is free); nothing was changed then.
    [[nodiscard]] Gradients<Engine> gradients(std::size_t unit, std::optional<Queue> writer = {},
                                              bool is_zeroed = true) {
        _protocol.require_micro_step("gradients()");
        _protocol.require_not_ready(_reducer.readiness(), unit);
        Queue const queue = usable(writer.value_or(_compute));
        leasing([&] { _reducer.acquire(unit, queue, is_zeroed); });
        return {*this, unit, _protocol.micro_step_serial()};
    }

    /// @brief Adds a transient gradient of one parameter; its memory is free for commands after the
    /// returned event.
    /// @throws InvalidArgument when the span is not as long as the parameter; LateGradient
    template <class G = GradientType>
    Event hand_over(std::size_t unit, std::size_t parameter,
                    std::type_identity_t<std::span<G const>> gradient,
                    std::optional<Queue> writer = {}) {
        _protocol.require_micro_step("hand_over()");
        _protocol.require_member(unit, parameter);
        with_types(_layout.parameter(parameter).type, [&]<class Types>(Types) {
            if constexpr (!std::is_same_v<typename Types::Gradient, G>) {
                _protocol.refuse_type(parameter, "gradient",
                                      name_of(dtype_of<typename Types::Gradient>()),
                                      name_of(dtype_of<G>()));
            }
        });
        _protocol.require_not_ready(_reducer.readiness(), unit);
        _protocol.require_transient_gradient(parameter, gradient.size(),
                                             _reducer.is_in_callers_memory(parameter));
        Queue const queue = usable(writer.value_or(_compute));
        Event done;
        leasing([&] { done = _reducer.hand_over(unit, parameter, gradient.data(), queue); });
        return done;
    }

    /// @brief The commands on `writer` so far complete the unit's gradients of this micro-step; a
    /// second call does nothing.
    ///
    /// Enqueues the reduction of what is complete: in stages 0 to 2 every bucket up to the first
    /// incomplete one; in stage 3 those of the unit, so there it is collective.
    void gradients_ready(std::size_t unit, std::optional<Queue> writer = {}) {
        _protocol.require_micro_step("gradients_ready()");
        _protocol.require_unit(unit);
        Queue const queue = usable(writer.value_or(_compute));
        if (!_reducer.readiness().is_unit_ready(unit)) {
            leasing([&] { _reducer.set_ready(unit, queue); });
            _order.note(unit);
        }
    }

    /// @brief Norms of the gradients that `step` will apply: reduced over the ranks, unscaled and
    /// averaged, before clipping. For logging: it waits and allocates. Collective, between the last
    /// `end_micro_step` and `step`, which it does not change by one bit; no micro-step may follow.
    ///
    /// Elements count once, however many units or ranks share them. The same bits in every stage;
    /// `l2` over `global` is `StepReport::gradient_norm`. With a weighted mean they are norms of
    /// the sum, since the weights come with `step`. Ranks have to ask for the same kind and scope.
    /// @return one norm, or one for each group or parameter (0 when it is frozen); infinite where a
    /// gradient is not finite
    /// @throws OutOfOrder elsewhere
    [[nodiscard]] std::vector<double> gradient_norms(NormKind kind = NormKind::l2,
                                                     NormScope scope = NormScope::global) {
        _protocol.require_accumulated("gradient_norms()");
        double const factor = _decision.gradient_factor(
            _protocol.micro_steps(),
            predivide()); // while a graph is captured refused here, before anything is enqueued
        std::vector<double> norms;
        guarded([&] {
            _reducer.finish_step();
            norms = detail::GradientNorms<Config>(_layout, _decision.group_count(), scope)
                        .measure(kind, factor, _reducer, *_communicator, _queue, *_memory);
        });
        _protocol.end_accumulation();
        return norms;
    }

    /// @brief Ends the step: norm and overflow, decision, update and publication are enqueued.
    /// Collective.
    ///
    /// Waits on the host only under NonFinite::throw_error, under AtMinimumScale::throw_error or
    /// call_back, and in the one step that rebuilds buckets (Options::rebuild_buckets).
    /// @param learning_rate finite as a float, not negative; times each group's factor
    /// @param weight ReductionKind::weighted_mean only: of how many tokens (or samples) this rank's
    /// gradients of the step are sums; not negative. The gradient is the sum over all ranks divided
    /// by the sum of their weights; when that is 0, the step is skipped, and is no clean step for
    /// the loss scaler (an overflow still counts).
    /// @throws NonFiniteGradients, LossScaleExhausted: on every rank, the step changed nothing
    StepTicket<Engine> step(double learning_rate, std::optional<std::int64_t> weight = {}) {
        decide(learning_rate, weight);
        guarded([&] {
            if (!_store.sends_updates()) {
                _shard.update_all(_decision.groups(), _decision.decision());
                _store.publish_unsent();
                return;
            }
            for (std::size_t bucket = _layout.trainable_buckets();
                 bucket-- > 0;) { // in order of use by the next forward pass
                _shard.update(bucket, _decision.groups(), _decision.decision());
                _store.publish(bucket);
            }
        });
        return end_step();
    }

    /// @brief Refuses a weight that would be cut to an integer.
    template <class Weight>
        requires std::is_floating_point_v<Weight>
    StepTicket<Engine> step(double learning_rate, Weight) {
        static_assert(sizeof(Weight) == 0, "zero: the weight of a step is a number of tokens or "
                                           "samples, an integer; a fraction would be cut off.");
        return step(learning_rate);
    }

    /// @brief Ends the step with an update of the caller's own: calls `update(slice)` with a
    /// `SliceWithGradient` for every part of a parameter that this rank updates. Collective, waits
    /// for the decision and for `update`.
    ///
    /// `update` writes `slice.weights()` and may use the states. The engine rounds master weights
    /// to the parameters and publishes them. A skipped step does not call it.
    /// @throws what `update` throws, whatever its type: some weights may be written then, so the
    /// engine is broken, and the other ranks get Aborted
    template <class Update>
        requires(!std::is_convertible_v<Update, std::optional<std::int64_t>>
                 && !std::is_floating_point_v<std::remove_cvref_t<Update>>)
    StepTicket<Engine> step(double learning_rate, Update&& update,
                            std::optional<std::int64_t> weight = {}) {
        decide(learning_rate, weight);
        guarded([&] {
            detail::wait_for_collectives(*_communicator, _queue);
            if (UpdateDecision const decision = Backend::load(_decision.decision());
                !decision.skip) {
                _shard.for_each_type([&](auto const& memory) {
                    memory.update_by(update, decision.factor, learning_rate);
                });
            }
            for (std::size_t bucket = _layout.trainable_buckets(); bucket-- > 0;) {
                _store.publish(bucket);
            }
        });
        return end_step();
    }

    /// @brief Gives up the step after a caught error of the caller's own: gradients are dropped,
    /// parameters and states stay. On every rank, at the same point of the program: reductions that
    /// some ranks started and others did not would meet the wrong ones.
    void cancel_step() {
        _protocol.require_step("cancel_step()");
        guarded([&] {
            _reducer.cancel(_compute);
            _store.end_trace();
            _store.drop_prefetched();
        });
        _protocol.end_step();
    }

    /// @brief Orders all that was enqueued so far, on the compute queue and by the engine, before
    /// all that comes on either. Nothing waits on the host. Collective, between steps, with nothing
    /// held.
    ///
    /// For CUDA graphs. Call it right before a capture of whole steps begins on the compute stream,
    /// inside it before it ends, and before and after each launch of the graph on that stream.
    /// Learning rates and hyper-parameters that were set before a launch count in it, and so does
    /// the loss scale; the argument of `step` is that of the capture, so capture `step(1.0)` and
    /// set learning rates per group. What a step that was captured did, `last_report` tells and not
    /// its ticket.
    void join() {
        _protocol.require_idle("join()");
        _protocol.require_nothing_held(_store.held_bucket(), "join()");
        guarded([&] {
            _store.drop_prefetched();
            _store.wait_for_readers();
            Backend::wait(_queue, Backend::record(_compute), Fence::weights_read);
            Backend::wait(_compute, Backend::record(_queue), Fence::weights_published);
            _store.forget_events();
            _reducer.forget_events();
            _decision.forget_events();
            if constexpr (requires { _communicator->forget_events(); }) {
                _communicator->forget_events();
            }
            remember(Backend::record(_compute));
        });
    }

    /// @brief What the last step did that ran, be it captured or not. Waits. @throws OutOfOrder
    /// while a graph is captured
    [[nodiscard]] StepReport last_report() const { return believed(_decision.last_report()); }

    /// @brief The scale of this step, to be multiplied into the loss. @throws OutOfOrder outside a
    /// step: the scale of the next one is not known before `begin_step`
    [[nodiscard]] LossScale<Engine> loss_scale() const {
        _protocol.require_step("loss_scale()");
        return LossScale<Engine>(*this);
    }

    /// @}
    /// @name Parameters and states
    /// @{

    /// @brief Calls `visit(parameter, std::span<T const>)` for every parameter on every rank, in
    /// registration order. Collective; memory for one unit at a time. Waits.
    template <class Visitor>
    void for_each_full_parameter(Visitor&& visit) {
        _protocol.require_idle("for_each_full_parameter()");
        for (std::size_t parameter = 0; parameter < _layout.parameters().size(); ++parameter) {
            std::size_t const unit = _layout.parameter(parameter).units.front();
            auto const weights = acquire(unit);
            Backend::synchronise(Backend::record(_compute));
            guarded([&] { detail::wait_for_collectives(*_communicator, _queue); });
            with_types(_layout.parameter(parameter).type, [&]<class Types>(Types) {
                visit(parameter, weights.template get<typename Types::Parameter>(parameter));
            });
        }
    }

    /// @brief Calls `visit(OwnedSlice)` for every part of a trainable parameter that this rank
    /// updates. Waits; not collective. After a change of values call `parameters_changed`.
    template <class Visitor>
    void for_each_owned_slice(Visitor&& visit) {
        _store.wait_for_readers();
        Backend::synchronise(Backend::record(_queue));
        believe();
        _shard.for_each_type([&](auto const& memory) {
            for (std::size_t index = 0; index < memory.slices(); ++index) {
                auto owned = memory.owned_slice(index);
                visit(owned);
            }
        });
    }

    /// @brief After the caller changed parameters between two steps: makes the replicas equal and
    /// refreshes the master weights. Collective, waits.
    ///
    /// Adopted, scattered and stage 0 parameters: the values of rank 0 count. Owned ones: those of
    /// the owner, changed through `for_each_owned_slice`.
    void parameters_changed() {
        _protocol.require_idle("parameters_changed()");
        _protocol.require_nothing_held(_store.held_bucket(), "parameters_changed()");
        guarded([&] {
            Backend::wait(_queue, Backend::record(_compute),
                          Fence::weights_read); // commands may have made the changes
            _store.wait_for_readers();
            _store.drop_prefetched();
            _store.synchronise_changes();
            _shard.copy_parameters_to_master();
            detail::wait_for_collectives(*_communicator, _queue);
        });
    }

    /// @brief For the option `rebuild_buckets`.
    static void in_ready_order(detail::RebuildRequest<Config> request) {
        detail::EngineRebuild<Config>(*request._engine).run();
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

    /// @brief Steps that were not skipped. Waits. @throws CommunicatorError when what it waited for
    /// was aborted, and the engine does not know yet
    [[nodiscard]] std::uint64_t step_count() const {
        return believed(_decision.settled()).step_count;
    }

    /// @brief The loss scaler's trackers. Waits.
    [[nodiscard]] typename Config::LossScaler::State loss_scaler_state() const {
        return believed(_decision.settled()).scaler;
    }

    /// @brief Goes on from another state of the loss scaler, all trackers of it, from the next
    /// `begin_step` on. On every rank the same.
    /// @throws InvalidArgument when its scale is not positive and finite, is below 2^-126, or
    /// outside the scaler's bounds (without a scaler: is not 1)
    void set_loss_scaler_state(typename Config::LossScaler::State const& state) {
        _protocol.require_idle("set_loss_scaler_state()");
        _decision.require_valid(state);
        guarded([&] { _decision.set_scaler_state(state); });
    }

    /// @brief Replaces the loss scale and keeps the other trackers, from the next `begin_step` on.
    /// On every rank the same.
    /// @throws InvalidArgument as `set_loss_scaler_state`
    template <class Scaler = typename Config::LossScaler> // checked where it is called, not where
                                                          // an engine is instantiated explicitly
    void set_loss_scale(float scale) {
        static_assert(!std::is_same_v<Scaler, NoLossScaler>,
                      "zero: set_loss_scale() needs a loss scaler, and this stage has none; add "
                      "zero::StaticLossScaler or zero::DynamicLossScaler.");
        _protocol.require_idle("set_loss_scale()");
        _decision.require_valid(_decision.initial_with(scale));
        guarded([&] { _decision.set_scale(scale); });
    }

    /// @}
    /// @name What it is made of
    /// @{

    /// @brief The geometry. With `rebuild_buckets` another one after the first step.
    [[nodiscard]] FlatLayout const& layout() const noexcept { return _layout; }

    /// @brief The N of `ZeroStage<N>`.
    [[nodiscard]] int stage_number() const noexcept { return _number; }

    /// @brief When gradients are reduced: the option, or the stage's default.
    [[nodiscard]] ReductionSchedule schedule() const noexcept { return _schedule; }

    /// @brief Bytes of every buffer of this rank; what the memory resource handed out equals it.
    [[nodiscard]] MemoryPlan memory_plan() const {
        MemoryPlan plan;
        auto const all = context({});
        for (std::size_t type = 0; type < Config::types; ++type) {
            with_types(type, [&]<class Types>(Types) {
                plan += plan_memory(all.row, all.totals(type), element_sizes<Types>(),
                                    _options.storage, detail::has_wire<Types>(_schedule), 0);
            });
        }
        plan[BufferKind::control].content_bytes = _decision.size_bytes() + _reducer.table_bytes()
                                                  + _shard.table_bytes() + _store.table_bytes();
        plan[BufferKind::scratch].content_bytes =
            sizeof(float)
            * detail::scratch_floats<typename Config::Optimizer>(_layout, _rank, all.row);
        return plan;
    }

    /// @brief Bytes per element of each state, of one parameter type.
    template <class Types = typename Config::template TypesAt<0>>
    [[nodiscard]] static constexpr ElementSizes element_sizes() noexcept {
        return {sizeof(typename Types::Parameter),
                sizeof(typename Types::Gradient),
                sizeof(typename Types::Communication),
                sizeof(typename Types::Accumulation),
                detail::MasterWeightStore<Config, Types>::bytes,
                detail::OptimizerStateStore<Config>::bytes,
                detail::MasterWeightStore<Config, Types>::bytes_per_block,
                detail::OptimizerStateStore<Config>::bytes_per_block};
    }

    /// @}

private:
    friend class Weights<Engine>;
    friend class Gradients<Engine>;
    friend class StepTicket<Engine>;
    friend class LossScale<Engine>;
    friend class detail::EngineRebuild<Config>;

    [[nodiscard]] detail::EngineContext<Config>
    context(std::span<AnyParameter const> parameters) const {
        return {&_layout,
                _communicator,
                _queue,
                parameters,
                &_options,
                _memory,
                stage_row(_number, _schedule),
                _schedule,
                predivide(),
                _order.is_wanted() ? _options.leases_until_rebuild : 0};
    }

    static Queue usable(Queue queue) {
        if constexpr (requires { Backend::require_queue(queue); }) {
            Backend::require_queue(queue);
        }
        return queue;
    }

    /// What was read after a wait, unless it is of a collective that failed meanwhile. An engine
    /// that is known to have failed can be read.
    template <class T>
    [[nodiscard]] T believed(T const& value) const {
        believe();
        return value;
    }

    void believe() const {
        if (!_protocol.is_broken()) {
            detail::rethrow_failure_of(*_communicator);
        }
    }

    /// One divisor for all payloads, whatever their type: a power of two unless the caller chose
    /// another.
    [[nodiscard]] float predivide() const {
        return predivide_factor(_options.reduction, _layout.world(), Config::communicates_float16);
    }

    /// Calls `visit` with the type set of that number.
    template <class Visitor>
    static void with_types(std::size_t type, Visitor&& visit) {
        typename Config::TypeSetTuple sets;
        detail::visit_at(sets, type, visit);
    }

    /// The part of a step that comes before any update. Collective.
    void decide(double learning_rate, std::optional<std::int64_t> weight) {
        _protocol.require_may_step(learning_rate);
        _protocol.require_weight(weight, _options.reduction.kind == ReductionKind::weighted_mean);
        _protocol.require_nothing_held(_store.held_bucket(), "step()");
        guarded([&] {
            _reducer.finish_step();
            _store.wait_for_readers();
            _store.drop_prefetched();
            _decision.decide(_shard, learning_rate, _protocol.steps_begun(),
                             _protocol.micro_steps(), weight, predivide());
        });
    }

    StepTicket<Engine> end_step() {
        _protocol.end_step();
        Event const done = Backend::record(_queue);
        remember(done);
        if (_order.is_wanted()) {
            guarded([&] { _options.rebuild_buckets(detail::RebuildRequest<Config>(*this)); });
        }
        _decision.answer_overflow(done);
        return {*this, _decision.serial(), done};
    }

    [[nodiscard]] StepReport report(std::uint64_t serial, Event const& done) {
        Backend::synchronise(done);
        guarded([] {}); // a command that failed says so here
        return _decision.report(serial, done);
    }

    template <class T>
    [[nodiscard]] std::span<T const> weights_of(std::size_t unit, std::size_t parameter) const {
        _protocol.require_member(unit, parameter);
        require_type<T>(parameter);
        return {_store.template memory<typename Config::template TypesOf<T>>().whole(parameter),
                _layout.parameter(parameter).elements};
    }

    template <class T>
    [[nodiscard]] auto gradient_of(std::size_t unit, std::size_t parameter,
                                   std::uint64_t micro_step) const {
        using Types = typename Config::template TypesOf<T>;
        _protocol.require_current_gradient(_reducer.readiness(), unit, parameter, micro_step);
        require_type<T>(parameter);
        auto const& spec = _layout.parameter(parameter);
        return std::span<typename Types::Gradient>(_reducer.template gradient<Types>(parameter),
                                                   spec.trainable ? spec.elements : 0);
    }

    template <class T>
    void require_type(std::size_t parameter) const {
        static_assert(Config::template index_of<T>() < Config::types,
                      "zero: this is none of the model's parameter types.");
        if (std::size_t const type = _layout.parameter(parameter).type;
            type != Config::template index_of<T>()) {
            with_types(type, [&]<class Types>(Types) {
                _protocol.refuse_type(parameter, "type",
                                      name_of(dtype_of<typename Types::Parameter>()),
                                      name_of(dtype_of<T>()));
            });
        }
    }

    void release(std::size_t unit, Queue reader) noexcept {
        try {
            _store.release(unit, reader);
        } catch (std::exception const& error) {
            break_down(error.what());
        }
    }

    /// Compares readiness over the ranks where the communicator is a checked one, otherwise looks
    /// at this rank only.
    void require_all_used() {
        std::vector<std::uint64_t> unused{_protocol.first_unused(_reducer.readiness())};
        if constexpr (requires { requires Communicator::is_checked; }) {
            guarded([&] {
                unused = detail::gather_on_host(*_communicator, _queue, *_memory, unused,
                                                "unused parameters");
            });
        }
        _protocol.require_all_used(detail::as_span(unused));
    }

    /// Runs what sends, enqueues or calls back, after all checks: any failure breaks the engine and
    /// releases the peers.
    void guarded(detail::FunctionRef<> body) {
        try {
            Backend::rethrow_failure(_queue);
            Backend::rethrow_failure(_compute);
            _reducer.rethrow_failure();
            detail::rethrow_failure_of(*_communicator); // what its calls could not know yet
            body();
        } catch (std::exception const& error) {
            break_down(error.what());
            throw;
        } catch (...) {
            break_down("an exception that is no std::exception");
            throw;
        }
    }

    /// The same for a body that looks for leases before it does anything: its refusal leaves
    /// everything as it was.
    void leasing(detail::FunctionRef<> body) {
        std::exception_ptr refusal;
        guarded([&] {
            try {
                body();
            } catch (OutOfOrder const& error) {
                if (error.code() != 0) { // a device's, from the middle of the body: something
                                         // waited while a graph was captured
                    throw;
                }
                refusal = std::current_exception();
            }
        });
        if (refusal) {
            std::rethrow_exception(refusal);
        }
    }

    void remember(Event const& point) {
        if constexpr (requires { point.is_captured(); }) {
            _before_capture = point.is_captured() ? _before_capture : point;
        }
    }

    void break_down(char const* cause) noexcept {
        _protocol.break_down(cause);
        try {
            _communicator->abort(detail::text({_protocol.rank_text(), ": ", cause}));
        } catch (...) { // no memory for the text
            _communicator->abort(cause);
        }
    }

    int _number;
    Communicator* _communicator;
    std::size_t _rank;
    Options _options;
    MemoryResource* _memory;
    LayoutMaker _make_layout;
    FlatLayout _layout;
    detail::ReadyOrderRecorder _order;
    detail::Protocol _protocol;
    ReductionSchedule _schedule;
    std::unique_ptr<typename Backend::OwnedQueue> _own_queue;
    Queue _queue;
    Queue _compute;
    detail::StepControl<Config> _decision;
    detail::ParameterScheduler<Config> _store;
    detail::GradientScheduler<Config> _reducer;
    detail::OptimizerShard<Config> _shard;
    Event _before_capture{}; ///< the last point outside a graph, for whoever destroys the engine
                             ///< inside a capture
    detail::Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE
