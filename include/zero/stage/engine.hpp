#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../layout/flat_layout.hpp"
#include "../layout/memory_plan.hpp"
#include "../ops/norm.hpp"
#include "../policy/no_loss_scaler.hpp"
#include "detail/common/drain.hpp"
#include "detail/common/engine_context.hpp"
#include "detail/common/step_state.hpp"
#include "detail/common/stores_by_type.hpp"
#include "detail/decision/step_control.hpp"
#include "detail/engine/protocol.hpp"
#include "detail/gradients/gradient_scheduler.hpp"
#include "detail/memory/engine_memory.hpp"
#include "detail/optimizer/optimizer_store.hpp"
#include "detail/parameters/parameter_scheduler.hpp"
#include "gradients.hpp"
#include "loss_scale.hpp"
#include "micro_steps.hpp"
#include "parameter.hpp"
#include "stage_options.hpp"
#include "step_report.hpp"
#include "trace_report.hpp"
#include "weights.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE {

namespace host {
class Queue;
} // namespace host

namespace detail {
template <class Config>
class EngineRebuild;
template <class Config>
class StateAccess;
} // namespace detail

/// @brief The engine behind every stage: the call protocol, its checks, and the pipeline of a step.
///
/// A program uses it through `ZeroStage<N, Policies...>`, which derives from it. It owns the
/// layout, the communication queue (unless the options name one), one scheduler for parameters and
/// one for gradients, the optimizer shard and the scalars of the step. The communicator is
/// caller-owned.
///
/// Everything that touches gradients after the backward pass, or writes parameters, runs in order
/// on the communication queue. Fences connect that queue with the caller's queues.
template <class Config>
class Engine {
public:
    using ParameterType = typename Config::Parameter;   ///< the first type, if there are several
    using GradientType = typename Config::Gradient;     ///< type of their gradients
    using Communicator = typename Config::Communicator; ///< named by the policies
    using Backend = typename Config::Backend;           ///< the communicator's backend
    using Queue = typename Backend::Queue;              ///< also for the model's own commands
    using Event = typename Backend::Event;              ///< a point in a queue
    using Options = StageOptions<Config>;               ///< chosen at run time
    static constexpr std::size_t parameter_types = Config::types; ///< number of parameter types
    /// `Parameter` of the one type, or `AnyParameter` for a model with several.
    using Registration =
        std::conditional_t<parameter_types == 1, zero::Parameter<ParameterType, GradientType>,
                           AnyParameter>;
    using EngineType = Engine; ///< the base class of a stage, which handles refer to

    /// Makes the layout from the checked options and parameters.
    using LayoutMaker = FlatLayout (*)(int stage, std::size_t world, std::span<AnyParameter const>,
                                       Options const&, std::span<std::size_t const> unit_order);

    /// @brief Allocates everything and sets the initial values. Collective; waits.
    /// @param number stage number, 0 to 3
    /// @throws InvalidArgument (nothing was sent), LayoutMismatch, CommunicatorError, and whatever
    /// `Parameter::initialise` throws; the other ranks then get Aborted
    Engine(int number, Communicator& communicator, std::span<AnyParameter const> parameters,
           Options const& options, LayoutMaker make_layout);
    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;

    /// @brief Waits for all enqueued commands, including those on the compute queue. Inside a step
    /// it first aborts the communicator, because the other ranks would wait for this one. While
    /// handles live it prints why and aborts the program.
    ~Engine();

    /// @name The call protocol, the same for every stage
    /// @{

    /// @brief Starts a step and captures the loss scale with which its gradients are unscaled.
    /// @throws InvalidArgument if `StageOptions::current_memory` names memory that differs from the
    /// registered one (nothing was changed); NoGradients on every rank if all gradients of the
    /// first step lay in caller-owned memory, which `gradients` cleared or which was reported
    /// without it, and were exactly zero. To check this, the second call waits for the first step.
    /// CollectiveMismatch in stage 3 if the ranks acquired or gathered units in different orders in
    /// the last step; that step changed nothing. To check this, a rank that recorded an order in
    /// the last step, or gathered different units in it, waits for that step. The other ranks get
    /// Aborted. TooManySkips on every rank if the last step but one reached `skip_limit`: it and
    /// the last step changed nothing. The engine remains usable, and the count starts again.
    void begin_step();

    /// @brief Starts a micro-step. Under the boundary schedule the reductions of one announced as
    /// `MicroStep::last` overlap with its backward pass.
    void begin_micro_step(MicroStep announced = MicroStep::more);

    /// @brief Refuses a bool or number, which does not say what it announces.
    template <class Flag>
        requires std::is_arithmetic_v<Flag>
    void begin_micro_step(Flag) {
        static_assert(sizeof(Flag) == 0, "zero: begin_micro_step takes zero::MicroStep::last for "
                                         "the last micro-step of a step, and otherwise nothing or "
                                         "zero::MicroStep::more.");
    }

    /// @brief Ends a micro-step and enqueues the remaining reductions in index order. Collective.
    /// @throws UnusedParameter under UnusedParameters::error. The micro-step stays open; over a
    /// checked communicator it can only be cancelled.
    void end_micro_step();

    /// @brief Returns the range that begins and ends `count` micro-steps; with `TreeReduction` it
    /// may be left out: V / W. @throws InvalidArgument if count is 0
    [[nodiscard]] MicroSteps<Engine> micro_steps(std::size_t count = 0);

    /// @brief Returns the number of the micro-batch that this rank computes: micro_step * W + the
    /// rank, or its position in levels. Data and random numbers chosen by it, and not by the rank,
    /// train the same model on any number of ranks, with `TreeReduction` to the same bits.
    [[nodiscard]] std::size_t micro_batch(std::size_t micro_step) const noexcept;
    /// @brief Returns V, the micro-batches of all ranks in a step of `TreeReduction`; otherwise 0.
    [[nodiscard]] std::size_t micro_batches() const noexcept;

    /// @brief Makes a unit's parameters readable for commands on `reader` (default: the compute
    /// queue), also outside of steps. Collective in stage 3. @throws OutOfOrder if leases ran out.
    [[nodiscard]] Weights<Engine> acquire(std::size_t unit, std::optional<Queue> reader = {});

    /// @brief Takes the place of `acquire` on a rank that does not use a unit, if another rank may
    /// use it: in stage 3 it takes part in the gather and frees the unit at once. A conditional
    /// model calls it where the other ranks call `acquire`, and in the backward pass
    /// `gradients_ready` without gradients where they call it; the rank then counts as one with
    /// zero gradients. Ranks that acquire different units instead get CollectiveMismatch if the
    /// communicator compares tags; otherwise they wait. @throws OutOfOrder as `acquire`
    void skip(std::size_t unit) { auto const unused = acquire(unit); }

    /// @brief Leases the memory of a unit's gradients to commands on `writer` (default: the compute
    /// queue). The queue must outlive the micro-step.
    /// The memory is zero the first time in a micro-step, and the backward pass adds to it. A
    /// backward pass that writes every element may pass `is_zeroed = false`; it then gets
    /// uninitialised memory. Units that share a parameter may write from different queues: commands
    /// enqueued after `gradients` run after those that the other units reported.
    /// @throws LateGradient, OutOfOrder (no lease is free); nothing was changed
    [[nodiscard]] Gradients<Engine> gradients(std::size_t unit, std::optional<Queue> writer = {},
                                              bool is_zeroed = true);

    /// @brief Begins a unit's gradients without a handle, for a program that registered `.gradient`
    /// and writes its own memory. `gradients_ready` ends them.
    ///
    /// Call it before the backward pass: under `GradientWrites::added` it clears that memory. On
    /// `GradientWrites::overwritten`, and for the other terms, see `gradients`.
    /// @throws LateGradient, OutOfOrder (no lease is free); nothing was changed
    void begin_gradients(std::size_t unit, GradientWrites writes = GradientWrites::added,
                         std::optional<Queue> writer = {}) {
        auto const unused = gradients(unit, writer, writes == GradientWrites::added);
    }

    /// @brief Adds a transient gradient of one parameter. Its memory is free for commands after the
    /// returned event. An engine that can read it where it lies copies nothing and keeps the
    /// `owner` instead, until the reduction is done: at the latest until a `step` that waits.
    /// @throws InvalidArgument if the span is not aligned or has another length; LateGradient
    template <class G = GradientType>
    Event hand_over(std::size_t unit, std::size_t parameter,
                    std::type_identity_t<std::span<G const>> gradient,
                    std::optional<Queue> writer = {},
                    std::shared_ptr<void const> const& owner = {}) {
        return hand_over(unit, parameter, gradient.data(), gradient.size(), dtype_of<G>(), writer,
                         owner);
    }

    /// @brief Refuses a temporary container, which ends before it is read.
    template <class G = GradientType, class List>
        requires(std::is_class_v<List> && !std::is_trivially_copyable_v<List>)
    void hand_over(std::size_t, std::size_t, List&&, std::optional<Queue> = {},
                   std::shared_ptr<void const> const& = {}) {
        static_assert(sizeof(List) == 0,
                      "zero: hand_over() reads the gradient after the call, when this temporary "
                      "container has ended; keep it until the returned event is complete.");
    }

    /// @brief Says that nothing is added to a parameter's gradient in this micro-step, for programs
    /// that ask for the memory of every gradient, or report units with registered gradients of
    /// which only some are used. Its memory is then zero. Only UnusedParameters::leave reads it.
    /// @throws InvalidArgument if the unit does not use the parameter; OutOfOrder elsewhere
    void note_unused(std::size_t unit, std::size_t parameter) {
        _protocol.require_micro_step("note_unused()");
        _protocol.require_member(unit, parameter);
        _gradients.deliveries().note_unused(parameter);
    }

    /// @brief Declares that the commands enqueued on `writer` complete the unit's gradients of this
    /// micro-step. A second call is a no-op.
    /// Registered gradients are read from here on. A call that comes before the backward pass has
    /// written them is refused in stage 3 if the unit was neither acquired since the last
    /// micro-step nor leased, and found by the next `begin_step` if it is the first step and all
    /// gradients are zero. Otherwise it silently reduces old values, even if a later call is right.
    ///
    /// Enqueues the reduction of complete buckets: in stages 0 to 2 every bucket up to the first
    /// incomplete one, in stage 3 the buckets of the unit. Under the boundary schedule only the
    /// micro-step that was announced as the last reduces; the others add to the accumulation
    /// buffer. In stage 3 it is collective. @throws OutOfOrder; nothing was changed
    void gradients_ready(std::size_t unit, std::optional<Queue> writer = {});

    /// @brief Returns norms of the gradients that `step` will apply: reduced over the ranks,
    /// unscaled and averaged, before clipping. For logging: it waits and allocates. Collective;
    /// every rank passes the same kind and scope. Call it between the last `end_micro_step` and
    /// `step`; no micro-step may follow. It changes no bit of the step.
    ///
    /// Every element of the engine counts once, no matter how many units or ranks share it. The
    /// bits are the same in every stage; alone, `l2` over `global` is `StepReport::gradient_norm`.
    /// With a weighted mean the norms are those of the sum, because the weights come with `step`.
    /// @return one norm, or one per group or parameter: 0 if frozen, infinite unless all are finite
    /// @throws OutOfOrder elsewhere
    [[nodiscard]] std::vector<double> gradient_norms(NormKind kind = NormKind::l2,
                                                     NormScope scope = NormScope::global);

    /// @brief Ends the step: enqueues norm and overflow check, decision and update, and in stages 1
    /// and 2 the publication. Collective.
    ///
    /// On a host backend it waits if the engine uses memory of the caller, unless
    /// `StageOptions::asynchronous`: nothing touches that memory afterwards. Else the host waits
    /// only under NonFinite::throw_error, AtMinimumScale::throw_error or call_back, in the one step
    /// that rebuilds buckets, in those of a warm-up (`DelayedUpdate`, which publishes the update of
    /// the step before), and on a rank that reported no gradient. A rank without data need not
    /// report any if another does.
    /// @param learning_rate not negative; finite as a float, also times the factor of each group
    /// @param weight for ReductionKind::weighted_mean only: the number of tokens or samples over
    /// which this rank's gradients are summed; 0 to 2^42. The gradient is the sum over all ranks
    /// divided by the sum of their weights. If the total weight is 0 the step is skipped, and the
    /// loss scaler does not count it as clean; an overflow still counts.
    /// @throws NoGradients, NonFiniteGradients, LossScaleExhausted on every rank: nothing changed
    StepTicket<Engine> step(double learning_rate, std::optional<std::int64_t> weight = {});

    /// @brief Refuses a fractional weight, which would be truncated.
    template <class Weight>
        requires std::is_floating_point_v<Weight>
    StepTicket<Engine> step(double learning_rate, Weight) {
        static_assert(sizeof(Weight) == 0, "zero: the weight of a step is a number of tokens or "
                                           "samples, an integer; a fraction would be truncated.");
        return step(learning_rate);
    }

    /// @brief Ends the step with a caller-defined update: calls `update(slice)` with a
    /// `SliceWithGradient` for every slice that this rank updates. Collective; waits for the
    /// decision and for `update`.
    ///
    /// `update` writes `slice.weights()` and may use the states. The engine then rounds master
    /// weights to the parameters, and in stages 1 and 2 publishes these. A skipped step does not
    /// call `update`.
    /// @throws whatever `update` throws. Some weights may be written by then, so the engine is
    /// broken, and the other ranks get Aborted.
    template <class Update>
        requires(!std::is_convertible_v<Update, std::optional<std::int64_t>>
                 && !std::is_floating_point_v<std::remove_cvref_t<Update>>)
    StepTicket<Engine> step(double learning_rate, Update&& update,
                            std::optional<std::int64_t> weight = {});

    /// @brief Refuses an update without a learning rate.
    template <class Update>
        requires(!std::is_convertible_v<Update, double>)
    StepTicket<Engine> step(Update&&) {
        static_assert(sizeof(Update) == 0,
                      "zero: step(update) also needs the learning rate, which the update reads as "
                      "slice.learning_rate; write step(learning_rate, update).");
        return step(0.0);
    }

    /// @brief Cancels the step, for instance after an exception of the model: it drops the
    /// gradients and keeps parameters and states. Every rank must call it at the same point of the
    /// program; otherwise reductions that only some ranks started are matched with the wrong ones.
    /// Waits where `step` waits for memory of the caller.
    void cancel_step();

    /// @brief Publishes the update that `DelayedUpdate` left pending; otherwise it does nothing.
    /// Collective, between steps, with no handle held; waits. Checkpoints, loads and collective
    /// access to states do it themselves. All else there but `begin_step` throws OutOfOrder.
    void settle();

    /// @brief Returns whether the parameters lack the update of the last step. Between two steps.
    [[nodiscard]] bool is_update_pending() const noexcept { return _protocol.is_update_pending(); }

    /// @brief Orders everything enqueued so far, on the compute queue and by the engine, before
    /// everything that follows on either. Does not wait on the host. Collective, between steps,
    /// with no handle held.
    ///
    /// For CUDA graphs: call it right before the capture of whole steps begins on the compute
    /// stream, inside the capture before it ends, and before and after each launch of the graph on
    /// that stream. Learning rates, hyper-parameters and the loss scale set before a launch take
    /// effect in it. The argument of `step` is fixed by the capture: capture `step(1.0)`, set
    /// learning rates per group, and read the result by `last_report`, not by the ticket.
    void join();

    /// @brief Returns the last report, captured or not. Waits. @throws OutOfOrder in a capture
    [[nodiscard]] StepReport last_report() const;

    /// @brief Returns the loss scale of this step; multiply it into the loss. @throws OutOfOrder
    /// outside a step, because the next scale is not known before `begin_step`
    [[nodiscard]] LossScale<Engine> loss_scale() const;

    /// @}
    /// @name Parameters and states
    /// @{

    /// @brief Calls `visit(parameter, std::span<T const>)` for every parameter on every rank, once
    /// and in registration order. Collective; stages 0 to 2 send nothing. Memory: one unit. Waits.
    /// Stage 3 gathers a unit once if the model registers unit after unit, and again each time its
    /// parameters continue after those of another unit.
    template <class Visitor>
    void for_each_full_parameter(Visitor&& visit);

    /// @brief Compares the replicas that `counts_on` the first model rank. Collective; waits.
    /// @throws InvalidArgument on every rank, naming the parameter. The engine remains usable
    void require_same_replicas();

    /// @brief Copies all parameters into a caller-owned block, one after the other in registration
    /// order, without padding. Collective; every rank takes part, also without a block. Waits.
    /// @param block as long as all parameters together, in memory that the backend can write; empty
    /// on a rank that needs no copy
    /// @throws InvalidArgument for another length; nothing was sent
    void gather_to(std::span<ParameterType> block)
        requires(parameter_types == 1)
    {
        gather_block(block.data(), block.size());
    }

    /// @brief Calls `visit(OwnedSlice)` for every slice of a trainable parameter that this rank
    /// updates. Waits; not collective. After a change of values or master weights call
    /// `TrainingState::publish_master_weights` on every rank. With copied master weights on a host
    /// it needs memory for a copy of the largest slice.
    template <class Visitor>
    void for_each_owned_slice(Visitor&& visit);

    /// @brief Compares the memory and sizes in the caller's registrations with those from which
    /// this engine was made. Call it where a framework may have replaced tensors: after clearing
    /// gradients, moving a model, or growing a vector. Sends nothing; O(parameters).
    /// @param parameters all of them, in the order of registration
    /// @throws InvalidArgument naming the first parameter that differs; nothing was changed
    void check_memory(std::span<Registration const> parameters) const;

    /// @brief Call it after changing parameters in your own memory between two steps: makes the
    /// replicas equal and refreshes the master weights, which lose the bits that the parameters do
    /// not have. Collective; waits.
    /// Adopted, scattered and stage 0 parameters take the values of rank 0, owned ones those of
    /// their owner. `TrainingState::publish_master_weights` keeps every bit of master weights.
    void parameters_changed();

    /// @brief The value for the option `rebuild_buckets`.
    static void in_ready_order(detail::RebuildRequest<Config> request);

    /// @brief Sets the factor of a group's learning rate, from the next step on. `step` multiplies
    /// it by its argument.
    void set_learning_rate(std::size_t group, double factor);

    /// @brief Sets the hyper-parameters of a group, from the next step on.
    void set_hyper_parameters(std::size_t group, typename Config::Optimizer::Options const& hyper);

    /// @brief Returns the factor of a group's learning rate, as set last.
    [[nodiscard]] double learning_rate_factor(std::size_t group) const;

    /// @brief Returns the hyper-parameters of a group, as set last. Waits.
    [[nodiscard]] typename Config::Optimizer::Options hyper_parameters(std::size_t group) const;

    /// @brief Returns the number of steps that were not skipped. Waits for all enqueued commands.
    /// @throws CommunicatorError if the collectives were aborted and no earlier call reported it
    [[nodiscard]] std::uint64_t step_count() const;

    /// @brief Sets the number of steps that were not skipped, on which optimizers with bias
    /// correction and stochastic rounding depend, and the number of updates of every parameter
    /// (`TrainingState::updates`). Pass the same on every rank; the next `step` compares it.
    /// @throws InvalidArgument for more than 2^62
    void set_step_count(std::uint64_t count);

    /// @brief Returns the loss scaler's trackers. Waits.
    [[nodiscard]] typename Config::LossScaler::State loss_scaler_state() const;

    /// @brief Replaces all trackers of the loss scaler, from the next `begin_step` on. Pass the
    /// same state on every rank.
    /// @throws InvalidArgument if its scale is not positive and finite, is below 2^-126, or is
    /// outside the scaler's bounds (without a scaler: is not 1), or if predivide over it is 0 or
    /// infinite as a float
    void set_loss_scaler_state(typename Config::LossScaler::State const& state);

    /// @brief Replaces the loss scale and keeps the other trackers, from the next `begin_step` on.
    /// Pass the same scale on every rank.
    /// @throws InvalidArgument as `set_loss_scaler_state`
    template <class Scaler = typename Config::LossScaler> // checked at the call only
    void set_loss_scale(float scale) {
        static_assert(!std::is_same_v<Scaler, NoLossScaler>,
                      "zero: set_loss_scale() needs a loss scaler, and this stage has none; add "
                      "zero::StaticLossScaler or zero::DynamicLossScaler.");
        replace_loss_scale(scale);
    }

    /// @}
    /// @name Composition
    /// @{

    /// @brief Returns the layout. `rebuild_buckets` replaces it after the first step.
    [[nodiscard]] FlatLayout const& layout() const noexcept { return _layout; }

    /// @brief Returns the options.
    [[nodiscard]] Options const& options() const noexcept { return _options; }

    /// @brief Returns the communicator.
    [[nodiscard]] Communicator& communicator() const noexcept { return *_communicator; }

    /// @brief Returns the N of `ZeroStage<N>`.
    [[nodiscard]] int stage_number() const noexcept { return _number; }

    /// @brief Returns when gradients are reduced: as the options say, or the stage's default.
    [[nodiscard]] ReductionSchedule schedule() const noexcept { return _schedule; }

    /// @brief Returns whether a step has one micro-step: by option, or because of an adopted block.
    [[nodiscard]] bool has_one_micro_step() const;

    /// @brief Returns whether the calling thread itself runs the commands of `communication_queue`.
    [[nodiscard]] bool communicates_inline() const;

    /// @brief Returns the bytes of every buffer of this rank: what the memory resource allocates.
    [[nodiscard]] MemoryPlan memory_plan() const;

    /// @brief Returns the memory plan as a text, and which units and parameters set the size of the
    /// leases, by name (`describe_leases`). If all parameters are in one unit, it says what that
    /// costs. Plans the leases again: O(n log n) in the parameters for usual unit orders.
    [[nodiscard]] std::string describe_memory() const;

    /// @brief Returns what stage 3 gathered, which acquisitions found their unit in time, and the
    /// first one that left the recorded order. Does not wait.
    [[nodiscard]] TraceReport const& trace_report() const noexcept {
        return _parameters.schedule().report();
    }

    /// @brief Returns the options that were set and that this stage does not use, as `describe`
    /// lists them, and so of registrations: no elements, `Update::matrix`, gaps in a block.
    [[nodiscard]] std::vector<std::string> unused_options() const;

    /// @brief Returns the timeline that a `Timed` communicator records; null if it records none.
    template <class Timed = Communicator> // clang instantiates members that are not templates
        requires requires(Timed const& timed) { timed.timeline(); }
    [[nodiscard]] auto* timeline() const noexcept {
        return static_cast<Timed const*>(_communicator)->timeline();
    }

    /// @brief Returns the bytes per element of each state, for one parameter type.
    template <class Types = typename Config::template TypesAt<0>>
    [[nodiscard]] static constexpr ElementSizes element_sizes() noexcept {
        return detail::element_sizes_of<Config, Types>();
    }

    /// @}

private:
    friend class Weights<Engine>;
    friend class Gradients<Engine>;
    friend class StepTicket<Engine>;
    friend class LossScale<Engine>;
    friend class detail::EngineRebuild<Config>;
    friend class detail::StateAccess<Config>;
    template <class... Configs>
    friend class JointStep;

    template <class T>
    static constexpr std::size_t type_of() noexcept;
    template <class T>
    [[nodiscard]] std::span<T const> weights_of(std::size_t unit, std::size_t parameter) const;
    template <class T>
    [[nodiscard]] std::span<typename Config::template TypesOf<T>::Gradient>
    gradient_of(std::size_t unit, std::size_t parameter, std::uint64_t micro_step) const;

    [[nodiscard]] std::size_t parameter_at(std::size_t unit, std::size_t position) const {
        return _protocol.parameter_at(unit, position);
    }
    [[nodiscard]] void const* weights_address(std::size_t unit, std::size_t parameter,
                                              std::size_t type) const;
    [[nodiscard]] void* gradient_address(std::size_t unit, std::size_t parameter,
                                         std::uint64_t micro_step, std::size_t type) const;
    Event hand_over(std::size_t unit, std::size_t parameter, void const* gradient,
                    std::size_t elements, DType type, std::optional<Queue> writer,
                    std::shared_ptr<void const> const& owner);
    void require_type(std::size_t parameter, std::size_t type) const;
    void replace_loss_scale(float scale);
    [[nodiscard]] CurrentMemory registered_memory(std::size_t parameter) const;
    void check_current_memory() const;
    void require_may_begin_step();
    void release(std::size_t unit, Queue reader) noexcept;
    [[nodiscard]] StepReport report(std::uint64_t serial, Event const& done);
    void wait(Event const& done);

    /// The part of a step that precedes every update, and its parts. Collective.
    void decide(double learning_rate, std::optional<std::int64_t> weight);
    void require_may_decide(double learning_rate, std::optional<std::int64_t> weight);
    detail::StepInspection inspect(double learning_rate, std::optional<std::int64_t> weight,
                                   detail::GradientEvidence evidence, bool is_inspected);
    void apply_update();
    [[nodiscard]] bool waits_for_update();
    template <class Update>
    void publish_all(Update const& update);
    template <class Update>
    void publish_updates(Update const& update);
    void settle_pending(char const* call);
    void begin_updates();
    void finish_updates();
    void end_updates();
    StepTicket<Engine> end_step();
    void compare_call(char const* call);
    template <class Visitor>
    void visit_full(char const* call, Visitor&& visit);
    void gather_block(ParameterType* block, std::size_t size);
    void wait_for_owned_slices();
    void wait_for_weights();
    void require_all_used();
    [[nodiscard]] detail::OrderEvidence order_evidence() const;
    void require_same_order();

    [[nodiscard]] detail::EngineContext<Config>
    context(std::span<AnyParameter const> parameters) const;
    Queue usable(std::optional<Queue> queue) const;
    /// The divisor of all payloads, whatever their type: a power of two by default.
    [[nodiscard]] float predivide() const;
    template <class Visitor>
    static void with_types(std::size_t type, Visitor&& visit) {
        typename Config::TypeSetTuple sets;
        detail::visit_at(sets, type, visit);
    }

    // Failures: a public call checks its arguments and the protocol first. Code that then sends,
    // enqueues or calls back stands in `try { ... } catch (...) { fail(); }`: a failure there
    // leaves the ranks in different states.

    /// Throws what an earlier command threw on one of the queues, and breaks the engine.
    void require_healthy();
    /// In a catch block: breaks the engine, releases the other ranks, and rethrows.
    [[noreturn]] void fail();
    /// The same for a call that looks for leases first: its OutOfOrder changed nothing.
    [[noreturn]] void fail_unless_refused();
    void break_down(char const* cause) noexcept;
    [[nodiscard]] bool keeps_sums_in_place() const;
    [[nodiscard]] static bool uses_callers_memory(std::span<AnyParameter const> parameters,
                                                  Options const& options) noexcept;
    /// Waits, on a host, until no command up to `done` touches memory of the caller.
    void leave_callers_memory(Event const& done);
    /// Throws if the collectives waited for were aborted. A broken engine may still be read.
    void require_finished_collectives() const;

    void remember(Event const& point);
    /// Whether commands run in threads of this process; `step` waits if they use callers' memory.
    static constexpr bool is_host = std::is_same_v<Queue, host::Queue*>;

    mutable std::size_t _live_gradients = 0; ///< handles of `gradients`
    int _number;
    Communicator* _communicator;
    std::size_t _rank;
    Options _options;
    detail::EngineMemory _blocks;
    MemoryResource* _memory; ///< `_blocks`
    LayoutMaker _make_layout;
    FlatLayout _layout;
    detail::ReadyOrderRecorder _ready_order;
    detail::Protocol _protocol;
    ReductionSchedule _schedule;
    [[no_unique_address]] detail::OwnedOffload<Config> _offload;
    [[no_unique_address]] detail::WarmUp<Config> _warm_up;
    std::unique_ptr<typename Backend::OwnedQueue> _own_queue;
    Queue _queue;
    Queue _compute;
    detail::StepControl<Config> _control;
    [[no_unique_address]] detail::CountedParameters<Config> _counted;
    detail::ParameterScheduler<Config> _parameters;
    detail::GradientScheduler<Config> _gradients;
    Buffer<float> _update_scratch; ///< shared by the stores of all types
    detail::StoresByType<Config, detail::OptimizerStore> _optimizer;
    std::shared_ptr<void const> _gather_index; ///< of `GatheredParameters`; null before the first
    bool _waits_for_callers; ///< commands may use memory of the caller, who asked `step` to wait
    Event _before_capture{}; ///< the last point outside a graph, where one is destroyed inside it
    detail::Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE

// Defined outside the class: `extern template` (declare_stage.hpp) keeps no inline member out.
#include "detail/engine/engine_access.tpp"
#include "detail/engine/engine_set_up.tpp"
#include "detail/engine/engine_step.tpp"
#include "detail/engine/engine_update.tpp"
