#pragma once

// Access to parameters, states, settings and reports of an engine; included by engine.hpp.

#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../layout/gradient_source.hpp"
#include "../../engine.hpp"
#include "../common/gather_on_host.hpp"
#include "../common/named_rows.hpp"
#include "../registration/make_stage_layout.hpp"
#include "../registration/model_ranks.hpp"
#include "../registration/validate_arguments.hpp"

namespace ZERO_NAMESPACE {

template <class Config>
std::size_t Engine<Config>::micro_batch(std::size_t micro_step) const noexcept {
    return micro_step * detail::data_size_of(*_communicator) + detail::position_of(*_communicator);
}

template <class Config>
std::size_t Engine<Config>::micro_batches() const noexcept {
    return Config::adds_in_tree ? _options.reduction.micro_batches : 0;
}

template <class Config>
bool Engine<Config>::has_one_micro_step() const {
    return _options.reduction.one_micro_step
           || (_schedule == ReductionSchedule::boundary && has_gradient_block(_layout));
}

template <class Config>
template <class T>
constexpr std::size_t Engine<Config>::type_of() noexcept {
    constexpr std::size_t type = Config::template index_of<T>();
    static_assert(type < Config::types, "zero: this is none of the model's parameter types.");
    return type;
}

template <class Config>
template <class T>
std::span<T const> Engine<Config>::weights_of(std::size_t unit, std::size_t parameter) const {
    void const* const address = weights_address(unit, parameter, type_of<T>());
    return {static_cast<T const*>(address), _layout.parameter(parameter).elements};
}

template <class Config>
template <class T>
auto Engine<Config>::gradient_of(std::size_t unit, std::size_t parameter,
                                 std::uint64_t micro_step) const
    -> std::span<typename Config::template TypesOf<T>::Gradient> {
    using G = typename Config::template TypesOf<T>::Gradient;
    void* const address = gradient_address(unit, parameter, micro_step, type_of<T>());
    auto const& spec = _layout.parameter(parameter);
    return {static_cast<G*>(address), spec.trainable ? spec.elements : 0};
}

template <class Config>
void const* Engine<Config>::weights_address(std::size_t unit, std::size_t parameter,
                                            std::size_t type) const {
    _protocol.require_member(unit, parameter);
    require_type(parameter, type);
    void const* address = nullptr;
    with_types(type, [&]<class Types>(Types) {
        address = _parameters.template store<Types>().whole(parameter);
    });
    return address;
}

template <class Config>
void* Engine<Config>::gradient_address(std::size_t unit, std::size_t parameter,
                                       std::uint64_t micro_step, std::size_t type) const {
    _protocol.require_current_gradient(_gradients.readiness(), unit, parameter, micro_step);
    require_type(parameter, type);
    void* address = nullptr;
    with_types(type, [&]<class Types>(Types) {
        address = _gradients.template gradient<Types>(parameter);
    });
    return address;
}

/// @throws InvalidArgument if the parameter has a different type from the requested one
template <class Config>
void Engine<Config>::require_type(std::size_t parameter, std::size_t type) const {
    if (std::size_t const own = _layout.parameter(parameter).type; own != type) {
        _protocol.refuse_type(parameter, "type", name_of(Config::parameter_dtypes[own]),
                              name_of(Config::parameter_dtypes[type]));
    }
}

template <class Config>
template <class Visitor>
void Engine<Config>::for_each_full_parameter(Visitor&& visit) {
    visit_full("for_each_full_parameter()", visit);
}

/// Visits every parameter. @param call the public function, for messages
template <class Config>
template <class Visitor>
void Engine<Config>::visit_full(char const* call, Visitor&& visit) {
    _protocol.require_idle(call, detail::StateUse::read_parameters);
    if constexpr (!detail::compares_calls<Communicator>) {
        if (context({}).row.shards_parameters()) { // otherwise one rank may visit alone
            compare_call(call);
        }
    }
    std::optional<Weights<Engine>> weights; // handle of the last parameter's unit
    for (std::size_t parameter = 0; parameter < _layout.parameters().size(); ++parameter) {
        if (!weights || !_layout.is_member(weights->unit(), parameter)) {
            weights.reset(); // first, so that only one unit at a time needs memory
            weights.emplace(acquire(_layout.parameter(parameter).units.front()));
            wait_for_weights();
        }
        with_types(_layout.parameter(parameter).type, [&]<class Types>(Types) {
            visit(parameter, weights->template get<typename Types::Parameter>(parameter));
        });
    }
}

template <class Config>
void Engine<Config>::require_same_replicas() {
    if constexpr (ModelParallelCommunicator<Communicator>) {
        settle_pending("require_same_replicas()");
        _protocol.require_idle("require_same_replicas()", detail::StateUse::read_parameters);
        std::vector<std::uint64_t> rows;
        std::optional<Weights<Engine>> weights; // as in `visit_full`
        for (std::size_t parameter = 0; parameter < _layout.parameters().size(); ++parameter) {
            ParameterSpec const& spec = _layout.parameter(parameter);
            if (spec.counts_on != CountsOn::first_model_rank) {
                continue;
            }
            if (!weights || !_layout.is_member(weights->unit(), parameter)) {
                weights.reset();
                weights.emplace(acquire(spec.units.front()));
                wait_for_weights();
            }
            with_types(spec.type, [&]<class Types>(Types) {
                auto const values = weights->template get<typename Types::Parameter>(parameter);
                std::string bytes(values.size_bytes(), '\0');
                detail::Drain<Backend> const drain(_queue); // the copy writes to them
                Backend::copy_bytes(_queue, bytes.data(), values.data(), bytes.size());
                wait_for_weights(); // of the copy
                rows.push_back(detail::name_hash(_layout, parameter));
                rows.push_back(detail::hash_of_values(bytes));
            });
        }
        weights.reset();
        std::exception_ptr difference;
        try {
            auto const gather =
                detail::gather_over(_communicator->model(), _queue, *_memory, _counted.engine);
            try {
                detail::compare_replicas(_layout, rows, gather);
            } catch (InvalidArgument const&) { // on every model rank
                difference = std::current_exception();
            }
        } catch (...) {
            fail();
        }
        if (difference) {
            std::rethrow_exception(difference);
        }
    }
}

template <class Config>
template <class Visitor>
void Engine<Config>::for_each_owned_slice(Visitor&& visit) {
    _protocol.require_states_here("for_each_owned_slice()", detail::StateUse::change);
    wait_for_owned_slices();
    detail::Protocol::Visit const visiting(_protocol);
    _optimizer.each([&](auto& store) { store.visit_slices(visit); });
}

/// Waits until the host may read what was acquired on the compute queue.
template <class Config>
void Engine<Config>::wait_for_weights() {
    Backend::synchronise(Backend::record(_compute));
    require_healthy();
    try {
        detail::wait_for_collectives(*_communicator, _queue);
        _parameters.rethrow_failure();
    } catch (...) {
        fail();
    }
}

/// Waits until the host may read and write what this rank owns.
template <class Config>
void Engine<Config>::wait_for_owned_slices() {
    _protocol.require_states_here("access to states", detail::StateUse::read_all);
    _parameters.wait_for_readers();
    Backend::synchronise(Backend::record(_queue));
    if constexpr (detail::delays_update<Config>) {
        if (_protocol.is_broken()) { // this rank alone completes what it has begun
            bool const is_pending = _protocol.is_update_pending();
            _protocol.set_update_pending(false);
            _optimizer.each([=](auto const& store) { store.finish_alone(is_pending); });
        }
    }
    require_finished_collectives();
}

template <class Config>
void Engine<Config>::require_finished_collectives() const {
    if (!_protocol.is_broken()) {
        detail::rethrow_failure_of(*_communicator);
    }
}

/// The caller-owned memory of a parameter; null where the engine uses its own.
template <class Config>
CurrentMemory Engine<Config>::registered_memory(std::size_t parameter) const {
    auto const& spec = _layout.parameter(parameter);
    CurrentMemory memory{nullptr, nullptr, spec.elements};
    with_types(spec.type, [&]<class Types>(Types) {
        if (_options.storage != Storage::owned) {
            memory.data = _parameters.template store<Types>().whole(parameter);
        }
        memory.gradient = _gradients.template store<Types>().callers(parameter);
    });
    return memory;
}

template <class Config>
[[gnu::cold]] void Engine<Config>::check_memory(std::span<Registration const> parameters) const {
    detail::require_same_count(_layout.parameters().size(), parameters.size(), _rank);
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        AnyParameter const parameter(parameters[index]);
        auto const& spec = _layout.parameter(index);
        CurrentMemory const registered = registered_memory(index);
        CurrentMemory const now{parameter.data, parameter.gradient, parameter.spec.elements};
        detail::require_same_name(spec, parameter.spec.name, index, _rank);
        detail::require_same_memory(spec, registered, now, _rank);
        detail::require_no_other_memory(spec, registered, now, _rank);
    }
}

/// Everything that a step asks before it changes anything.
template <class Config>
void Engine<Config>::require_may_begin_step() {
    _protocol.require_may_begin_step();
    _protocol.require_no_visit("begin_step()");
    _protocol.require_nothing_written("begin_step()");
    if constexpr (detail::delays_update<Config>
                  && requires(Event const& event) { event.is_captured(); }) {
        if (Backend::record(_compute).is_captured()) {
            detail::throw_error<OutOfOrder>(
                {"zero: begin_step() while a graph is captured, but the update of a captured step "
                 "would have to end in it; leave zero::DelayedUpdate out of Offload (",
                 _protocol.rank_text(), ")."});
        }
    }
    if (_options.current_memory) {
        check_current_memory();
    }
}

/// Asks the caller where its memory is now.
template <class Config>
[[gnu::cold]] void Engine<Config>::check_current_memory() const {
    for (std::size_t index = 0; index < _layout.parameters().size(); ++index) {
        detail::require_same_memory(_layout.parameter(index), registered_memory(index),
                                    _options.current_memory(index), _rank);
    }
}

template <class Config>
[[gnu::cold]] void Engine<Config>::parameters_changed() {
    settle_pending("parameters_changed()");
    _protocol.require_idle("parameters_changed()");
    _protocol.require_nothing_held("parameters_changed()");
    compare_call("parameters_changed()");
    try {
        // Commands on the compute queue may have made the changes.
        Backend::wait(_queue, Backend::record(_compute), Fence::weights_read);
        _parameters.wait_for_readers();
        _parameters.drop_prefetched();
        _optimizer.each([](auto& store) { store.round_written_masters(); });
        _parameters.synchronise_changes();
        _optimizer.each([](auto& store) { store.copy_parameters_to_master(); });
        if constexpr (detail::codes_weights<Config>) {
            publish_all([](std::size_t /*bucket*/) {});
        }
        detail::wait_for_collectives(*_communicator, _queue);
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::in_ready_order(detail::RebuildRequest<Config> request) {
    detail::EngineRebuild<Config>(*request._engine).run();
}

template <class Config>
void Engine<Config>::set_learning_rate(std::size_t group, double factor) {
    _protocol.require_alive();
    _protocol.require_group(group, _control.group_count());
    _protocol.require_rate(factor, "learning rate factor");
    require_healthy();
    try {
        _control.set_learning_rate(group, factor);
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::set_hyper_parameters(std::size_t group,
                                          typename Config::Optimizer::Options const& hyper) {
    _protocol.require_alive();
    _protocol.require_group(group, _control.group_count());
    Config::Optimizer::validate(hyper);
    require_healthy();
    try {
        _control.set_hyper_parameters(group, hyper);
    } catch (...) {
        fail();
    }
}

template <class Config>
double Engine<Config>::learning_rate_factor(std::size_t group) const {
    _protocol.require_group(group, _control.group_count());
    return _control.learning_rate_factor(group);
}

template <class Config>
auto Engine<Config>::hyper_parameters(std::size_t group) const ->
    typename Config::Optimizer::Options {
    _protocol.require_group(group, _control.group_count());
    auto const options = _control.hyper_parameters(group);
    require_finished_collectives();
    return options;
}

template <class Config>
void Engine<Config>::set_step_count(std::uint64_t count) {
    _protocol.require_idle("set_step_count()");
    detail::require_steps(count, "step count");
    require_healthy();
    if constexpr (detail::delays_update<Config>) {
        _warm_up.is_over = false; // counted again
    }
    try {
        _control.set_step_count(count);
        if constexpr (detail::keeps_errors<Config>) { // of the steps that are counted no more
            _gradients.each_errors([](auto& errors) { errors.clear(); });
        }
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::set_loss_scaler_state(typename Config::LossScaler::State const& state) {
    _protocol.require_idle("set_loss_scaler_state()");
    _control.require_valid(state);
    detail::check_unscaling(predivide(), state.scale);
    require_healthy();
    try {
        _control.set_scaler_state(state);
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::replace_loss_scale(float scale) {
    _protocol.require_idle("set_loss_scale()");
    auto scaler = Config::LossScaler::initial(_options.loss_scaler);
    scaler.scale = scale;
    _control.require_valid(scaler);
    detail::check_unscaling(predivide(), scale);
    require_healthy();
    try {
        _control.set_scale(scale);
    } catch (...) {
        fail();
    }
}

template <class Config>
std::uint64_t Engine<Config>::step_count() const {
    std::uint64_t const count = _control.settled().step_count;
    require_finished_collectives();
    return count;
}

template <class Config>
auto Engine<Config>::loss_scaler_state() const -> typename Config::LossScaler::State {
    auto const state = _control.settled().scaler;
    require_finished_collectives();
    return state;
}

template <class Config>
StepReport Engine<Config>::last_report() const {
    StepReport report = _control.last_report();
    require_finished_collectives();
    return report;
}

/// Compares a call that sends nothing in some stage over the ranks; see `detail::compare_call`.
template <class Config>
[[gnu::cold]] void Engine<Config>::compare_call(char const* call) {
    require_healthy();
    try {
        detail::compare_call(*_communicator, _queue, *_memory, detail::engine_tag(_layout, call));
    } catch (...) {
        fail();
    }
}

template <class Config>
void Engine<Config>::gather_block(ParameterType* block, std::size_t size) {
    std::size_t elements = 0;
    for (auto const& spec : _layout.parameters()) {
        elements += spec.elements;
    }
    if (size != 0 && size != elements) {
        detail::throw_error<InvalidArgument>(
            {"zero: gather_to() got a block of ", size, " elements for ", elements, " (",
             _protocol.rank_text(),
             "); give one as long as all parameters, or an empty one on a rank that needs no "
             "copy."});
    }
    detail::Drain<Backend> const drain(_compute); // nothing writes to the block after a throw
    visit_full("gather_to()", [&](std::size_t parameter, auto values) {
        if (size != 0 && !values.empty()) {
            Backend::copy_bytes(_compute, block + _layout.first_element(parameter), values.data(),
                                values.size_bytes());
        }
    });
    Backend::synchronise(Backend::record(_compute));
}

template <class Config>
StepReport Engine<Config>::report(std::uint64_t serial, Event const& done) {
    wait(done);
    return _control.report(serial, done);
}

template <class Config>
auto Engine<Config>::loss_scale() const -> LossScale<Engine> {
    _protocol.require_step("loss_scale()");
    return LossScale<Engine>(*this);
}

template <class Config>
[[gnu::cold]] bool Engine<Config>::communicates_inline() const {
    if constexpr (requires { _own_queue->has_thread(); }) {
        return _own_queue ? !_own_queue->has_thread() : _queue == Backend::default_compute_queue();
    } else {
        return false;
    }
}

} // namespace ZERO_NAMESPACE
