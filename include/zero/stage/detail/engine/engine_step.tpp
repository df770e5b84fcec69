#pragma once

// The call protocol of an engine, from begin_step() to the end of a step, and what it does when a
// call fails; included by engine.hpp.

#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../engine.hpp"
#include "../common/gather_on_host.hpp"
#include "../decision/decide_step.hpp"
#include "../gradients/gradient_norms.hpp"

#include <exception>

namespace ZERO_NAMESPACE {

template <class Config>
void Engine<Config>::begin_step() {
    require_may_begin_step();
    _control.require_first_gradients(_compute);
    if (_parameters.schedule().evidence().is_changed) {
        require_same_order();
    }
    require_healthy();
    try {
        _control.skips().answer(_control.serial());
        _control.capture(_compute);
        if constexpr (Config::Offload::is_any) { // the first reads run beside the passes
            if (!_protocol.is_update_pending()) {
                _offload->begin();
            }
        }
        if constexpr (detail::keeps_errors<Config>) {
            _gradients.each_errors(
                [&](auto& errors) { errors.begin_step(_control.captured_scale()); });
        }
    } catch (TooManySkips const&) { // on every rank: the engine remains usable
        throw;
    } catch (...) {
        fail();
    }
    _gradients.begin_step();
    _ready_order.begin_step();
    _parameters.schedule().begin_step();
    _protocol.begin_step();
}

template <class Config>
void Engine<Config>::begin_micro_step(MicroStep announced) {
    _protocol.require_may_begin_micro_step(_gradients.reduces_once(), _options.reduction);
    if constexpr (Config::adds_in_tree) {
        _protocol.require_micro_step_of(_options.reduction.micro_batches,
                                        announced == MicroStep::last);
    }
    _gradients.begin_micro_step(announced == MicroStep::last);
    _parameters.schedule().begin_micro_step();
    _protocol.begin_micro_step(announced == MicroStep::last);
}

template <class Config>
void Engine<Config>::end_micro_step() {
    _protocol.require_micro_step("end_micro_step()");
    bool const refuses_unused = _options.unused_parameters == UnusedParameters::error;
    constexpr bool compares = requires { requires Communicator::is_checked; };
    if (refuses_unused && !compares) {
        require_all_used();
    }
    require_healthy();
    try {
        _parameters.gather_deferred();
        _gradients.end_micro_step(_compute);
    } catch (...) {
        fail();
    }
    if (refuses_unused && compares) {
        // After all reductions: a rank without a gradient starts some of them only here.
        require_all_used();
    }
    _parameters.schedule().end_micro_step(true);
    _protocol.end_micro_step();
}

template <class Config>
auto Engine<Config>::micro_steps(std::size_t count) -> MicroSteps<Engine> {
    if constexpr (Config::adds_in_tree) {
        std::size_t const all = _options.reduction.micro_batches;
        count = count == 0 ? all / _layout.world() : count;
        _protocol.require_micro_steps("micro_steps()", count, all);
    }
    if (count == 0) {
        detail::throw_error<InvalidArgument>(
            {"zero: micro_steps(0): a step accumulates at least one micro-step; pass their "
             "number, which only TreeReduction knows."});
    }
    return {*this, count};
}

template <class Config>
auto Engine<Config>::acquire(std::size_t unit, std::optional<Queue> reader) -> Weights<Engine> {
    _protocol.require_may_acquire();
    _protocol.require_unit(unit);
    if constexpr (Config::Offload::offloads(BufferKind::parameters)) {
        _offload->require_no_visit();
    }
    Queue const queue = usable(reader);
    require_healthy();
    try {
        _parameters.acquire(unit, queue);
    } catch (...) {
        fail_unless_refused();
    }
    _protocol.acquire(unit);
    return {*this, unit, queue};
}

template <class Config>
auto Engine<Config>::gradients(std::size_t unit, std::optional<Queue> writer, bool is_zeroed)
    -> Gradients<Engine> {
    _protocol.require_gradient_call("gradients()");
    _protocol.require_not_ready(_gradients.readiness(), unit);
    Queue const queue = usable(writer);
    require_healthy();
    try {
        _gradients.acquire(unit, queue, is_zeroed);
    } catch (...) {
        fail_unless_refused();
    }
    return {*this, unit, _protocol.micro_step_serial()};
}

template <class Config>
auto Engine<Config>::hand_over(std::size_t unit, std::size_t parameter, void const* gradient,
                               std::size_t elements, DType type, std::optional<Queue> writer,
                               std::shared_ptr<void const> const& owner) -> Event {
    _protocol.require_gradient_call("hand_over()");
    _protocol.require_member(unit, parameter);
    with_types(_layout.parameter(parameter).type, [&]<class Types>(Types) {
        if (constexpr DType own = dtype_of<typename Types::Gradient>(); own != type) {
            _protocol.refuse_type(parameter, "gradient", name_of(own), name_of(type));
        }
    });
    _protocol.require_not_ready(_gradients.readiness(), unit);
    _protocol.require_transient_gradient(parameter, gradient, type, elements,
                                         _gradients.is_in_callers_memory(parameter));
    Queue const queue = usable(writer);
    _waits_for_callers = is_host && !_options.asynchronous;
    require_healthy();
    try {
        return _gradients.hand_over(unit, parameter, gradient, queue, owner);
    } catch (...) {
        fail_unless_refused();
    }
}

template <class Config>
void Engine<Config>::gradients_ready(std::size_t unit, std::optional<Queue> writer) {
    _protocol.require_gradient_call("gradients_ready()");
    _protocol.require_unit(unit);
    Queue const queue = usable(writer);
    if (_gradients.readiness().is_unit_ready(unit)) {
        return;
    }
    _protocol.require_used(unit, _number < 3 || _parameters.schedule().was_acquired(unit),
                           _gradients.deliveries());
    require_healthy();
    try {
        _parameters.gather_deferred();
        _gradients.set_ready(unit, queue);
    } catch (...) {
        fail_unless_refused();
    }
    _ready_order.note(unit);
}

template <class Config>
auto Engine<Config>::gradient_norms(NormKind kind, NormScope scope) -> std::vector<double> {
    _protocol.require_accumulated("gradient_norms()");
    if constexpr (Config::adds_in_tree) {
        _protocol.require_whole_tree("gradient_norms()", _options.reduction.micro_batches);
    }
    // While a graph is captured this throws, before anything is enqueued.
    double const factor = _control.gradient_factor(_protocol.micro_steps(), predivide());
    std::vector<double> norms;
    require_healthy();
    try {
        _gradients.finish_step();
        norms = detail::GradientNorms<Config>(_layout, _control.group_count(), scope)
                    .measure(kind, factor, _counted, _gradients, *_communicator, _queue, *_memory);
    } catch (...) {
        fail();
    }
    _protocol.end_accumulation();
    return norms;
}

template <class Config>
auto Engine<Config>::step(double learning_rate, std::optional<std::int64_t> weight)
    -> StepTicket<Engine> {
    decide(learning_rate, weight);
    apply_update();
    return end_step();
}

/// Enqueues the update of the step that was decided, and its publication.
template <class Config>
void Engine<Config>::apply_update() {
    require_healthy();
    try {
        if constexpr (detail::delays_update<Config>) {
            begin_updates();
        } else {
            auto const update = [&](std::size_t bucket) {
                _optimizer.of_bucket(bucket, [&](auto const& store) {
                    store.update(bucket, _control.rows(), _control.decision());
                });
            };
            constexpr bool is_by_bucket =
                Config::Offload::is_any || detail::updates_on_host<Config>;
            if (is_by_bucket || _parameters.sends_updates()) {
                publish_updates(update);
            } else {
                _optimizer.each([&](auto const& store) {
                    store.update_all(_control.rows(), _control.decision());
                });
                _parameters.publish_unsent();
            }
        }
    } catch (...) {
        fail();
    }
}

template <class Config>
template <class Update>
    requires(!std::is_convertible_v<Update, std::optional<std::int64_t>>
             && !std::is_floating_point_v<std::remove_cvref_t<Update>>)
auto Engine<Config>::step(double learning_rate, Update&& update, std::optional<std::int64_t> weight)
    -> StepTicket<Engine> {
    static_assert(!detail::delays_update<Config>,
                  "zero: an update of the caller runs inside step(), so it cannot be delayed; call "
                  "step(learning_rate), or leave zero::DelayedUpdate out of Offload.");
    {
        typename detail::StepControl<Config>::Kind const kind(_control, "own update: ");
        decide(learning_rate, weight);
    }
    require_healthy();
    try {
        if (waits_for_update()) {
            auto const factor_of = [&](std::size_t group) {
                return _control.factor_of_group(group);
            };
            std::uint64_t const number = _control.settled().step_count;
            auto const numbers = _control.counts().numbers(number);
            _optimizer.each([&](auto const& store) {
                store.update_by(update, factor_of, learning_rate, number, numbers);
            });
        }
        publish_all([](std::size_t /*bucket*/) {});
    } catch (...) {
        fail();
    }
    return end_step();
}

template <class Config>
bool Engine<Config>::waits_for_update() {
    detail::wait_for_collectives(*_communicator, _queue);
    return !Backend::load(_control.decision()).skip;
}

template <class Config>
void Engine<Config>::decide(double learning_rate, std::optional<std::int64_t> weight) {
    _protocol.require_alone();
    require_may_decide(learning_rate, weight);
    auto const found = inspect(learning_rate, weight, _gradients.deliveries().evidence(),
                               _control.needs_inspection());
    try {
        _control.decide(found, learning_rate, _protocol.micro_steps(), predivide());
    } catch (...) {
        fail();
    }
}

/// Checks what `step` may be called with. Throws before anything is changed.
template <class Config>
void Engine<Config>::require_may_decide(double learning_rate, std::optional<std::int64_t> weight) {
    _protocol.require_may_step(learning_rate);
    if constexpr (Config::adds_in_tree) {
        _protocol.require_whole_tree("step()", _options.reduction.micro_batches);
    }
    _control.require_finite_rates(learning_rate);
    _protocol.require_weight(weight, _options.reduction.kind == ReductionKind::weighted_mean);
    _protocol.require_nothing_held("step()");
    require_healthy();
}

/// Completes the gradients and reduces what the decision reads.
template <class Config>
detail::StepInspection
Engine<Config>::inspect(double learning_rate, std::optional<std::int64_t> weight,
                        detail::GradientEvidence evidence, bool is_inspected) {
    try {
        _parameters.rethrow_failure();
        _gradients.finish_step();
        _parameters.wait_for_readers();
        _parameters.drop_prefetched();
        if constexpr (detail::delays_update<Config>) {
            if (_protocol.is_update_pending()) { // that of the step before
                finish_updates();
            }
        }
        if constexpr (Config::Offload::is_any) {
            _offload->begin();
            _offload->wait_for_writes(_queue);
        }
        return _control.inspect(_optimizer, learning_rate, _protocol.steps_begun(),
                                _protocol.micro_steps(), weight, evidence, order_evidence(),
                                _gradients.deliveries().noted(), is_inspected);
    } catch (...) {
        fail();
    }
}

/// In stages 0 to 2 `acquire` sends nothing, so its order is compared in stage 3 only.
template <class Config>
detail::OrderEvidence Engine<Config>::order_evidence() const {
    auto evidence = _parameters.schedule().evidence();
    evidence.is_compared =
        evidence.is_compared && stage_row(_number, _schedule).shards_parameters();
    return evidence;
}

/// Throws if the ranks acquired or gathered units in different orders in the last step. Waits for
/// its decision; only a rank whose order or gathers changed calls it. A step that is captured in a
/// graph is not checked.
template <class Config>
[[gnu::cold]] void Engine<Config>::require_same_order() {
    Event const now = Backend::record(_compute);
    if constexpr (requires { now.is_captured(); }) {
        if (now.is_captured()) {
            return;
        }
    }
    if (!order_evidence().is_compared || _control.serial() == 0) {
        return;
    }
    require_healthy();
    try {
        detail::wait_for_collectives(*_communicator, _queue);
        auto const agreement = _control.settled().integers.agreement;
        if (agreement.is_same()) {
            return;
        }
        auto const& schedule = _parameters.schedule();
        if (!agreement.is_changed_everywhere()) { // the other ranks call no collective here
            schedule.throw_change();
        }
        auto const own = schedule.recorded();
        std::size_t most = 0;
        for (std::uint64_t const size :
             detail::gather_on_host(*_communicator, _queue, *_memory, {std::uint64_t{own.size()}},
                                    detail::engine_tag(_layout, "length of the order of units"))) {
            most = detail::larger(most, static_cast<std::size_t>(size));
        }
        std::vector<std::uint64_t> padded(own.begin(), own.end());
        padded.resize(most, detail::GatherSchedule::none);
        detail::throw_order_mismatch(
            _layout,
            detail::as_span(detail::gather_on_host(*_communicator, _queue, *_memory, padded,
                                                   detail::engine_tag(_layout, "order of units"))),
            most);
    } catch (...) {
        fail();
    }
}

template <class Config>
auto Engine<Config>::end_step() -> StepTicket<Engine> {
    _protocol.end_step();
    if constexpr (detail::keeps_errors<Config>) {
        _control.with_figures([&](auto const* state, auto const&...) {
            _gradients.each_errors([&](auto& errors) { errors.end_step(state); });
        });
    }
    Event const done = Backend::record(_queue);
    remember(done);
    _gradients.end_step(_compute, done);
    if (_ready_order.is_wanted()) {
        require_healthy();
        try {
            _options.rebuild_buckets(detail::RebuildRequest<Config>(*this));
        } catch (...) {
            fail();
        }
    }
    leave_callers_memory(done);
    _control.skips().end_step(_control.serial(), done);
    _control.require_gradients(done);
    _control.answer_overflow(done);
    return {*this, _control.serial(), done};
}

template <class Config>
void Engine<Config>::cancel_step() {
    _protocol.require_step("cancel_step()");
    require_healthy();
    try {
        _parameters.gather_deferred();
        _gradients.cancel(_compute);
        _parameters.schedule().end_micro_step(false);
        _parameters.drop_prefetched();
        _control.note_cancelled();
        if constexpr (Config::Offload::is_any) {
            _offload->settle();
        }
    } catch (...) {
        fail();
    }
    _protocol.end_step();
    if (_waits_for_callers) {
        leave_callers_memory(Backend::record(_queue));
    }
}

template <class Config>
void Engine<Config>::join() {
    _protocol.require_idle("join()");
    _protocol.require_nothing_held("join()");
    require_healthy();
    try {
        _parameters.drop_prefetched();
        _parameters.wait_for_readers();
        Backend::wait(_queue, Backend::record(_compute), Fence::weights_read);
        Backend::wait(_compute, Backend::record(_queue), Fence::weights_published);
        _parameters.forget_events();
        _gradients.forget_events();
        _control.forget_events();
        if constexpr (requires { _communicator->forget_events(); }) {
            _communicator->forget_events();
        }
        remember(Backend::record(_compute));
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::remember(Event const& point) {
    if constexpr (requires { point.is_captured(); }) {
        _before_capture = point.is_captured() ? _before_capture : point;
    }
}

template <class Config>
void Engine<Config>::release(std::size_t unit, Queue reader) noexcept {
    _protocol.release(unit);
    try {
        _parameters.release(unit, reader);
    } catch (std::exception const& error) {
        break_down(error.what());
    }
}

/// A checked communicator compares readiness over the ranks; otherwise each rank checks its own.
template <class Config>
void Engine<Config>::require_all_used() {
    std::vector<std::uint64_t> unused{
        _protocol.first_unused(_gradients.readiness(), _gradients.deliveries())};
    if constexpr (requires { requires Communicator::is_checked; }) {
        require_healthy();
        try {
            unused = detail::gather_on_host(*_communicator, _queue, *_memory, unused,
                                            detail::engine_tag(_layout, "unused parameters"));
        } catch (...) {
            fail();
        }
    }
    _protocol.require_all_used(detail::as_span(unused));
}

/// Returns the queue that the caller named, otherwise the compute queue, which the constructor has
/// checked.
template <class Config>
auto Engine<Config>::usable(std::optional<Queue> queue) const -> Queue {
    if (!queue) {
        return _compute;
    }
    if constexpr (requires { Backend::require_queue(*queue); }) {
        Backend::require_queue(*queue);
    }
    return *queue;
}

template <class Config>
float Engine<Config>::predivide() const {
    return detail::predivide_factor(_options.reduction, detail::data_size_of(*_communicator),
                                    Config::communicates_float16 && !Config::adds_in_tree);
}

template <class Config>
void Engine<Config>::wait(Event const& done) {
    Backend::synchronise(done);
    require_healthy(); // reports the failure of an earlier command
    try {
        _parameters.rethrow_failure();
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::leave_callers_memory(Event const& done) {
    if constexpr (is_host) {
        if (_waits_for_callers) {
            Backend::synchronise(done);
            _gradients.release_held();
            require_healthy();
        }
    }
}

template <class Config>
void Engine<Config>::require_healthy() {
    try {
        Backend::rethrow_failure(_queue);
        Backend::rethrow_failure(_compute);
        _gradients.rethrow_failure();
        if constexpr (Config::Offload::is_any) {
            _offload->rethrow_failure();
        }
        detail::rethrow_failure_of(*_communicator); // also failures found after its calls returned
    } catch (...) {
        fail();
    }
}

/// Called in a `catch` block: a guard object could not read the exception's message.
template <class Config>
[[gnu::cold]] void Engine<Config>::fail() {
    try {
        throw;
    } catch (std::exception const& error) {
        break_down(error.what()); // peers get its first line
        throw;
    } catch (...) {
        break_down("an exception that is not a std::exception");
        throw;
    }
}

template <class Config>
[[gnu::cold]] void Engine<Config>::fail_unless_refused() {
    try {
        throw;
    } catch (OutOfOrder const& error) {
        if (error.code() != 0) { // from the device: something waited during the capture of a graph
            fail();
        }
        throw;
    } catch (...) {
        fail();
    }
}

template <class Config>
[[gnu::cold]] void Engine<Config>::break_down(char const* cause) noexcept {
    _protocol.break_down(cause);
    try {
        _communicator->abort(
            detail::text({_protocol.rank_text(), ": ", detail::first_line(cause)}));
    } catch (...) { // no memory for the text
        _communicator->abort(cause);
    }
    if (_waits_for_callers) { // the caller may free that memory while the exception passes
        detail::drain<Backend>(_queue);
        detail::drain<Backend>(_compute);
    }
}

} // namespace ZERO_NAMESPACE
