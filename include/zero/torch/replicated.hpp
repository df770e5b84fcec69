#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../stage/detail/common/engine_config.hpp"
#include "../stage/step_report.hpp"
#include "detail/gradient_hooks.hpp"
#include "detail/module_state.hpp"
#include "detail/module_tensors.hpp"
#include "device_of.hpp"
#include "paused.hpp"
#include "unit.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief The engine behind `->` of `Replicated`, without its `step`.
template <class Zero>
class EngineOfReplicated : public Zero {
public:
    using Zero::Zero;

    /// @brief Refuses the step of the engine: it may return before the tensors are written.
    template <class... Arguments>
    void step(Arguments&&...) = delete; // call replicated.step(...), or replicated.engine().step
};

} // namespace ZERO_NAMESPACE::torch::detail

namespace ZERO_NAMESPACE::torch {

/// @brief Trains a LibTorch module by an engine of stages 0 to 2, and leaves it as it is: its
/// tensors keep their memory and hold whole parameters, and the forward pass does not change.
///
///     zero::torch::Replicated<Zero> replicated(communicator, *model);
///     replicated->begin_step();
///     for (auto micro_step : replicated->micro_steps(n)) {
///         replicated.backward(loss_of(model->forward(tokens)));
///     }
///     replicated.step(learning_rate);
///
/// As soon as autograd has accumulated a gradient it is copied into the engine's buckets and
/// dropped; a communicator that can reduces it where it lies, and it is dropped then. `Sharded`
/// copies nothing and also works in stage 3, but its forward pass names the units. All calls are
/// made on the thread of the rank. The module must outlive this object.
/// @tparam Zero a `ZeroStage` of one parameter type whose communicator works on the host or, with
/// `torch/cuda.hpp`, on CUDA devices
template <class Zero>
class Replicated final : private detail::GradientReceiver {
    static_assert(detail::is_supported<Zero>());
    static_assert(!zero::detail::delays_update<zero::detail::config_of_t<Zero>>,
                  "zero::torch::Replicated: the module's tensors hold the parameters of the last "
                  "update, so it cannot be delayed; leave zero::DelayedUpdate out of Offload, or "
                  "use zero::torch::Sharded.");
    using T = typename Zero::ParameterType;
    using Backend = typename Zero::Backend;
    using Device = DeviceOf<typename Zero::Backend>;

public:
    /// @brief Constructs the engine, and sets parameters and buffers to rank 0's. Collective;
    /// waits.
    /// @param options options of the stage; `storage` and the names for messages are set
    /// @param units parameters that are reduced together; by default one unit for each module
    /// with parameters of its own. Every parameter is in at least one unit
    /// @param group_of the group of each parameter; by default 0
    /// @throws InvalidArgument for a parameter that is in no unit, of another type or device, a
    /// view, not contiguous, or shares its memory, and for stage 3; and what the stage's
    /// constructor throws
    Replicated(typename Zero::Communicator& communicator, ::torch::nn::Module& module,
               typename Zero::Options options = {}, std::optional<std::vector<Unit>> units = {},
               GroupOf const& group_of = {})
        : _communicator(&communicator),
          _tensors(module, units ? *units : units_by_module(module), scalar_type_of<T>(),
                   Device::type, communicator.rank(), "Replicated"),
          _queue(Device::compute_queue(options.compute_queue)),
          _is_step_pending(options.asynchronous || Device::type != c10::kCPU) {
        if constexpr (requires { Zero::Composition::stage; }) {
            static_assert(Zero::Composition::stage < 3,
                          "zero::torch::Replicated: stage 3 keeps no whole parameters; use "
                          "zero::torch::Sharded.");
        }
        options.storage = Storage::scattered;
        options.compute_queue = _queue;
        options.memory = Device::memory(options.memory);
        options.unit_names = _tensors.unit_names();
        options.backward_call = "backward(loss) of the Replicated module";
        _engine.emplace(communicator,
                        detail::registrations_of<Zero>(_tensors, group_of, Storage::scattered),
                        options);
        _hooks = std::make_shared<detail::GradientHooks>(
            _tensors, static_cast<detail::GradientReceiver&>(*this));
        _hooks->attach();
        _tensors.accept_values();
        broadcast_buffers();
        show_parameters();
    }

    /// @brief The same with one unit for each module:
    ///
    ///     Replicated<Zero> replicated(communicator, *model, options,
    ///         [](std::string const& name, at::Tensor const&) -> std::size_t {
    ///             return name.ends_with("bias") ? 1 : 0;
    ///         });
    template <class Group>
        requires std::is_invocable_r_v<std::size_t, Group const&, std::string const&,
                                       at::Tensor const&>
    Replicated(typename Zero::Communicator& communicator, ::torch::nn::Module& module,
               typename Zero::Options options, Group const& group_of)
        : Replicated(communicator, module, std::move(options), std::nullopt, GroupOf(group_of)) {}

    /// @brief Multiplies the loss by the loss scale and runs its backward pass, in which each
    /// gradient is added to the engine's buckets. Once for each micro-step.
    /// @throws InvalidArgument if a parameter was replaced, given other memory or written in place,
    /// or its gradient is sparse; LateGradient for a second backward pass in a micro-step;
    /// OutOfOrder outside of a micro-step, while `paused` lives, from another adapter that the loss
    /// reaches, and, if the engine's `step` may return before it has written the module's tensors
    /// (`options.asynchronous`, and on devices), if it was called instead of `step`; what autograd
    /// throws.
    /// Afterwards no parameter has a gradient, and `cancel_step` of the engine continues the
    /// training if all ranks call it.
    void backward(at::Tensor const& loss) {
        Device::require_current(_queue);
        require_shown();
        _hooks->backward(detail::scaled(*_engine, loss, "backward(loss) of the Replicated module",
                                        _tensors.rank()));
    }

    /// @brief Keeps the module out of the losses whose forward pass runs while the returned object
    /// lives, such as that of a generator, which runs through the discriminator. Not collective.
    /// @throws OutOfOrder as `backward`, if the engine's `step` was called instead of `step`
    [[nodiscard]] Paused paused() {
        require_shown();
        return Paused(_tensors);
    }

    /// @brief Ends the step, and writes the new parameters into the module's tensors. The arguments
    /// are those of the stage's `step`. Collective; waits.
    template <class... Arguments>
    StepReport step(Arguments&&... arguments) {
        try {
            auto const ticket = engine().step(std::forward<Arguments>(arguments)...);
            show_parameters();
            return ticket.report();
        } catch (...) {
            try { // unless the engine is broken, the step changed no parameter
                _shown = _engine->last_report().serial;
            } catch (Error const&) { // the first exception says why
            }
            throw;
        }
    }

    /// @brief Sets all parameters, and those buffers that `state` contains, to rank 0's values of
    /// `state`. Optimizer states are kept. Collective, between steps; waits.
    /// @param state complete on every rank, of any floating-point type
    /// @throws InvalidArgument naming a tensor that is missing, unknown or of another shape;
    /// nothing was changed
    void load(::torch::OrderedDict<std::string, at::Tensor> const& state) {
        detail::load_state(*_engine, _tensors, state);
        _tensors.accept_values();
        broadcast_buffers();
        show_parameters();
    }

    /// @brief Waits until the module's tensors have the engine's parameters: after a checkpoint was
    /// loaded into the engine, or its `step` was called. On the host, without
    /// `options.asynchronous`, both have already waited.
    void show_parameters() {
        for (std::size_t unit = 0; unit < _tensors.units(); ++unit) {
            (void)_engine->acquire(unit);
        }
        Zero::Backend::synchronise(Zero::Backend::record(_queue));
        _shown = _engine->last_report().serial;
    }

    /// @brief Sets the module's buffers to rank 0's, such as running means. Collective; waits.
    /// @throws InvalidArgument if a buffer is not contiguous
    void broadcast_buffers() {
        detail::broadcast_buffers(*_communicator, _tensors.module(), _queue);
    }

    /// @brief Returns the engine, for its other calls.
    [[nodiscard]] Zero& engine() noexcept { return *_engine; }
    [[nodiscard]] Zero const& engine() const noexcept { return *_engine; } ///< @copydoc engine

    /// @brief Returns the engine, for its other calls. `step` is that of this object.
    detail::EngineOfReplicated<Zero>* operator->() noexcept { return &*_engine; }

private:
    void receive(std::size_t parameter, at::Tensor const& gradient) override {
        std::span const values(static_cast<T const*>(gradient.const_data_ptr()),
                               static_cast<std::size_t>(gradient.numel()));
        auto const added = _engine->hand_over(_tensors[parameter].units.front(), parameter, values,
                                              _queue, std::make_shared<at::Tensor const>(gradient));
        Backend::wait(_queue, added, Fence::gradient_lease_reuse); // then autograd may reuse it
    }

    void ready(std::size_t unit) override { _engine->gradients_ready(unit); }

    void require_shown() {
        if (_is_step_pending && _engine->last_report().serial != _shown) {
            zero::detail::throw_error<OutOfOrder>(
                {"zero: the tensors of ", _tensors.module().name(),
                 " may not yet hold the parameters of the last step (rank ", _communicator->rank(),
                 "), because step() of the engine does not wait; call step() of the "
                 "Replicated module, or its show_parameters() before the forward pass."});
        }
    }

    typename Zero::Communicator* _communicator;
    detail::ModuleTensors _tensors;
    typename Zero::Queue _queue;
    bool
        _is_step_pending; ///< whether the engine's `step` may return before the tensors are written
    std::optional<detail::EngineOfReplicated<Zero>> _engine;
    std::uint64_t _shown = 0;                      ///< the step whose parameters the tensors hold
    std::shared_ptr<detail::GradientHooks> _hooks; // first to go
};

} // namespace ZERO_NAMESPACE::torch
