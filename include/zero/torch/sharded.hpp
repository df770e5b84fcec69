#pragma once

#include "../core/detail/namespace.hpp"
#include "../stage/step_report.hpp"
#include "../stage/weights.hpp"
#include "detail/module_state.hpp"
#include "detail/module_tensors.hpp"
#include "detail/unit_runner.hpp"
#include "device_of.hpp"
#include "paused.hpp"
#include "unit.hpp"

#include <c10/core/Allocator.h>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief Appends the tensors of the result of a forward call: a tensor, or a tuple, pair, array or
/// vector of such results.
template <class Result>
void append_outputs(std::vector<at::Tensor>& outputs, Result const& result) {
    if constexpr (std::is_convertible_v<Result const&, at::Tensor>) {
        outputs.push_back(result);
    } else if constexpr (requires { std::tuple_size<Result>::value; }) {
        std::apply([&](auto const&... parts) { (append_outputs(outputs, parts), ...); }, result);
    } else if constexpr (requires { result.begin() != result.end(); }) {
        for (auto const& part : result) {
            append_outputs(outputs, part);
        }
    } else {
        static_assert(sizeof(Result) == 0,
                      "zero: the forward call of a unit returns a tensor, or a tuple, pair, array "
                      "or vector of tensors: its backward pass is found through them.");
    }
}

} // namespace ZERO_NAMESPACE::torch::detail

namespace ZERO_NAMESPACE::torch {

/// @brief Trains the parameters of a LibTorch module by an engine of any stage. The module needs no
/// change: the engine owns the parameters, and a tensor shows the engine's memory while a unit that
/// uses it runs. No parameter or gradient is copied.
///
///     zero::torch::Sharded<Zero> sharded(communicator, *model, units);
///     sharded->begin_step();
///     for (auto micro_step : sharded->micro_steps(n)) {
///         auto x = sharded(0, [&] { return model->embedding(tokens); });
///         x = sharded(1, [&] { return model->block(x); });
///         sharded.backward(loss_of(x));
///     }
///     sharded.step(learning_rate);
///
/// Outside of `sharded(unit, ...)`, of the backward pass of the unit, and of `materialize` to
/// `shard`, a parameter has no memory: reading it throws a `c10::Error` that names it. All calls
/// are made on the thread of the rank. The module must outlive this object. This object must
/// outlive the graphs that were made with it.
/// @tparam Zero a `ZeroStage` of one parameter type whose communicator works on the host or, with
/// `torch/cuda.hpp`, on CUDA devices
template <class Zero>
class Sharded final : private detail::UnitEngine {
    static_assert(detail::is_supported<Zero>());
    using T = typename Zero::ParameterType;
    using Device = DeviceOf<typename Zero::Backend>;
    using Backend = typename Zero::Backend;

public:
    /// @brief Constructs the engine from the values of rank 0, broadcasts rank 0's buffers, and
    /// frees the memory of the module's parameters. Collective; waits.
    /// @param units in the order of the forward pass. Every parameter is in at least one.
    /// @param options options of the stage; `storage` stays `owned`, and the names for messages are
    /// set
    /// @param group_of the group of each parameter; by default 0
    /// @throws InvalidArgument for a parameter that is in no unit, of another type or device, a
    /// view, not contiguous, or shares its memory; and what the stage's constructor throws
    Sharded(typename Zero::Communicator& communicator, ::torch::nn::Module& module,
            std::vector<Unit> const& units, typename Zero::Options options = {},
            GroupOf const& group_of = {})
        : _communicator(&communicator), _tensors(module, units, scalar_type_of<T>(), Device::type,
                                                 communicator.rank(), "Sharded"),
          _queue(Device::compute_queue(options.compute_queue)),
          _leaves_unused(options.unused_parameters == UnusedParameters::leave) {
        options.compute_queue = _queue;
        options.memory = Device::memory(options.memory);
        options.unit_names = _tensors.unit_names();
        options.backward_call = "backward(loss) of the Sharded module";
        _engine.emplace(communicator,
                        detail::registrations_of<Zero>(_tensors, group_of, Storage::owned),
                        options);
        _handles.resize(units.size());
        _runner = std::make_shared<detail::UnitRunner>(
            _tensors, static_cast<detail::UnitEngine&>(*this),
            options.unused_parameters == UnusedParameters::error);
        broadcast_buffers();
        _tensors.release_all();
    }

    /// @brief Runs the forward pass of one unit with its parameters in place, and arranges that its
    /// backward pass finds them. Collective in stage 3.
    ///
    /// A unit may run several times in a micro-step, inside another unit, and again in the backward
    /// pass to recompute activations. It is reduced after the backward pass of its first call.
    /// @param forward returns a tensor, or a tuple, pair, array or vector of tensors
    /// @return what `forward` returns
    /// @throws InvalidArgument if a parameter of the unit was given other memory; what `acquire`
    /// and `forward` throw, which leaves the unit as it was
    template <class Forward>
    auto operator()(std::size_t unit, Forward&& forward) {
        Device::require_current(_queue);
        struct Scope { // also ends when forward throws
            detail::UnitRunner& runner;
            Scope(detail::UnitRunner& unit_runner, std::size_t number) : runner(unit_runner) {
                runner.enter(number);
            }
            Scope(Scope const&) = delete;
            Scope& operator=(Scope const&) = delete;
            ~Scope() { runner.leave(); }
        };
        Scope const scope(*_runner, unit);
        auto result = std::forward<Forward>(forward)();
        std::vector<at::Tensor> outputs;
        detail::append_outputs(outputs, result);
        _runner->watch(outputs);
        return result;
    }

    /// @brief Multiplies the loss by the loss scale and runs its backward pass, in which autograd
    /// adds gradients directly into the engine's buckets and complete units are reduced. Once for
    /// each micro-step.
    /// @throws InvalidArgument if a parameter of the module or its gradient was replaced;
    /// LateGradient for a second backward pass in a micro-step, and for a parameter that was used
    /// outside of its units; UnusedParameter, if the options ask for it; OutOfOrder outside of a
    /// micro-step, between `materialize` and `shard`, while `paused` lives, and from another
    /// adapter that the loss reaches; what autograd throws.
    /// Afterwards no unit is held and no gradient is lent, and `cancel_step` of the engine
    /// continues the training if all ranks call it.
    void backward(at::Tensor const& loss) {
        Device::require_current(_queue);
        _runner->backward(detail::scaled(*_engine, loss, "backward(loss) of the Sharded module",
                                         _tensors.rank()));
        for (std::size_t parameter = 0; _leaves_unused && parameter < _tensors.size();
             ++parameter) { // the engine sees only that the memory of a gradient was lent
            detail::ModuleTensor const& item = _tensors[parameter];
            if (item.is_trainable && !item.is_used) {
                _engine->note_unused(item.units.front(), parameter);
            }
        }
    }

    /// @brief Keeps the module out of the losses whose forward pass runs while the returned object
    /// lives, such as that of a generator, which runs through the discriminator. Not collective.
    /// The backward pass of that loss still needs the parameters, so in stage 3 it gathers them on
    /// every rank.
    [[nodiscard]] Paused paused() { return Paused(_tensors); }

    /// @brief Ends the step. The arguments are those of the stage's `step`. Collective; waits,
    /// unlike that of the engine.
    template <class... Arguments>
    StepReport step(Arguments&&... arguments) {
        return engine().step(std::forward<Arguments>(arguments)...).report();
    }

    /// @brief Copies the whole parameters into the module's tensors: for `torch::save`, evaluation
    /// and export. Collective, between steps; waits. Needs memory for the model.
    ///
    /// Until `shard`, units run without the engine, so one rank may evaluate alone, and `backward`
    /// is refused.
    /// @throws OutOfOrder inside a step or a unit
    void materialize() {
        _runner->require_idle("materialize()");
        try {
            _engine->for_each_full_parameter([&](std::size_t parameter, std::span<T const> values) {
                auto memory = c10::GetAllocator(Device::type)->allocate(values.size_bytes());
                if (!values.empty()) {
                    Backend::copy_bytes(_queue, memory.get(), values.data(), values.size_bytes());
                    Backend::synchronise(Backend::record(_queue));
                }
                _tensors.own(parameter, std::move(memory));
            });
        } catch (...) {
            shard();
            throw;
        }
        _runner->is_whole = true;
    }

    /// @brief Frees the whole parameters again. The engine's values are unchanged; to keep values
    /// written into the tensors, call `load` first. Not collective.
    void shard() {
        _tensors.release_all();
        _runner->is_whole = false;
    }

    /// @brief Sets all parameters, and those buffers that `state` contains, to rank 0's values of
    /// `state`. Optimizer states are kept. Collective, between steps; waits.
    ///
    /// After `materialize` and `torch::load(model, file)` pass `model->named_parameters()`.
    /// @param state complete on every rank, of any floating-point type
    /// @throws InvalidArgument naming a tensor that is missing, unknown or of another shape;
    /// nothing was changed
    void load(::torch::OrderedDict<std::string, at::Tensor> const& state) {
        detail::load_state(*_engine, _tensors, state);
        broadcast_buffers();
        if (_runner->is_whole) {
            materialize();
        }
    }

    /// @brief Sets the module's buffers to rank 0's, such as running means. Collective; waits.
    /// @throws InvalidArgument if a buffer is not contiguous
    void broadcast_buffers() {
        detail::broadcast_buffers(*_communicator, _tensors.module(), _queue);
    }

    /// @brief Returns the engine, for its other calls.
    [[nodiscard]] Zero& engine() noexcept {
        _runner->end_foreign_backward(); // if it failed
        return *_engine;
    }
    [[nodiscard]] Zero const& engine() const noexcept { return *_engine; } ///< @copydoc engine

    Zero* operator->() noexcept { return &engine(); } ///< @copydoc engine

private:
    void acquire(std::size_t unit, std::vector<void*>& addresses) override {
        auto& handle = _handles[unit].emplace(_engine->acquire(unit));
        auto const& members = _tensors.members(unit);
        for (std::size_t member = 0; member < members.size(); ++member) {
            addresses[member] = const_cast<T*>(handle[members[member]].data());
        }
    }

    void release(std::size_t unit) noexcept override { _handles[unit].reset(); }

    void lease(std::size_t unit, std::vector<void*>& addresses) override {
        auto const gradients = _engine->gradients(unit);
        auto const& members = _tensors.members(unit);
        for (std::size_t member = 0; member < members.size(); ++member) {
            addresses[member] = gradients[members[member]].data();
        }
    }

    void ready(std::size_t unit) override { _engine->gradients_ready(unit); }

    [[nodiscard]] std::size_t leases_of_all() const noexcept override {
        return _engine->layout().trainable_buckets();
    }

    typename Zero::Communicator* _communicator;
    detail::ModuleTensors _tensors;
    typename Zero::Queue _queue;
    bool _leaves_unused;
    std::optional<Zero> _engine;
    std::vector<std::optional<zero::Weights<typename Zero::EngineType>>> _handles;
    std::shared_ptr<detail::UnitRunner> _runner; // first to go
};

} // namespace ZERO_NAMESPACE::torch
