#pragma once

#include "../../comm/detail/optional_operations.hpp"
#include "../../comm/grouped_communicator.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../../stage/training_state.hpp"
#include "../device_of.hpp"
#include "module_tensors.hpp"

#include <cstddef>
#include <string>
#include <torch/types.h>
#include <type_traits>
#include <vector>

// What Sharded and Replicated do with the tensors of a module besides training them.

namespace ZERO_NAMESPACE::torch::detail {

/// @brief Refuses a stage that does not work with the tensors of LibTorch.
template <class Zero>
consteval bool is_supported() {
    static_assert(Zero::parameter_types == 1,
                  "zero::torch: the stage has several parameter types; use one.");
    static_assert(DeviceOf<typename Zero::Backend>::is_supported,
                  "zero::torch: include <zero/torch/cuda.hpp> for a communicator of CUDA devices; "
                  "there are none for other devices.");
    static_assert(std::is_same_v<typename Zero::ParameterType, typename Zero::GradientType>,
                  "zero::torch: LibTorch's gradients have the type of the parameters; "
                  "name no other gradient type.");
    static_assert(!ModelParallelCommunicator<typename Zero::Communicator>,
                  "zero::torch: a module does not say which of its tensors are replicas on several "
                  "model ranks; use zero::ZeroStage itself with zero::ModelParallel.");
    return true;
}

/// @brief Returns the parameters for the constructor of an engine that owns them, or of one that
/// trains them in place.
template <class Zero>
std::vector<typename Zero::Registration>
registrations_of(ModuleTensors const& tensors, GroupOf const& group_of, Storage storage) {
    using T = typename Zero::ParameterType;
    std::vector<typename Zero::Registration> registrations(tensors.size());
    for (std::size_t parameter = 0; parameter < tensors.size(); ++parameter) {
        ModuleTensor const& item = tensors[parameter];
        auto& registration = registrations[parameter];
        registration.name = item.name;
        if (storage == Storage::owned) {
            registration.initial = static_cast<T const*>(item.tensor.const_data_ptr());
        } else {
            registration.data = static_cast<T*>(item.tensor.mutable_data_ptr());
        }
        registration.elements = static_cast<std::size_t>(item.tensor.numel());
        registration.units = item.units;
        registration.trainable = item.is_trainable;
        registration.update = item.update;
        registration.group = group_of ? group_of(item.name, item.tensor) : 0;
        registration.shape.assign(item.tensor.sizes().begin(), item.tensor.sizes().end());
    }
    return registrations;
}

/// @brief Returns a loss multiplied by the loss scale of the step.
/// @param call the adapter's call, for messages, as `rank`
/// @throws OutOfOrder outside of a step
template <class Zero>
at::Tensor scaled(Zero& engine, at::Tensor const& loss, char const* call, int rank) {
    double scale = 1.0;
    try {
        scale = static_cast<double>(engine.loss_scale());
    } catch (OutOfOrder const&) {
        zero::detail::throw_error<OutOfOrder>(
            {"zero: ", call,
             " outside a step; call begin_step() first, and then the micro-steps (rank ", rank,
             ")."});
    }
    return scale == 1.0 ? loss : loss * static_cast<float>(scale);
}

/// @brief Sets the module's buffers to rank 0's. Collective; waits.
/// @throws InvalidArgument if a buffer is not contiguous, or is on another device
template <class Communicator, class Queue>
void broadcast_buffers(Communicator& communicator, ::torch::nn::Module const& module, Queue queue) {
    std::size_t number = 0;
    for (auto const& buffer : module.named_buffers()) {
        at::Tensor const& tensor = buffer.value();
        if (!tensor.is_contiguous()) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: buffer '", buffer.key(), "' is not contiguous (rank ", communicator.rank(),
                 "); register a contiguous tensor."});
        }
        if (tensor.device().type() != DeviceOf<typename Communicator::Backend>::type) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: buffer '", buffer.key(),
                 "' lies on another device than the stage's backend (rank ", communicator.rank(),
                 "); move the module before it is registered."});
        }
        if (tensor.nbytes() != 0) {
            communicator.broadcast(static_cast<unsigned char*>(tensor.data_ptr()), tensor.nbytes(),
                                   0, queue, CollectiveTag{"values of buffer", number});
        }
        ++number;
    }
    zero::detail::wait_for_collectives(communicator, queue);
}

/// @brief Requires that `state` has all parameters of the module in their shapes, and no tensor
/// that the module lacks. @throws InvalidArgument
[[gnu::cold]] inline void
require_complete(ModuleTensors const& tensors,
                 ::torch::OrderedDict<std::string, at::Tensor> const& state,
                 ::torch::OrderedDict<std::string, at::Tensor> const& buffers) {
    auto const refuse = [&](std::string const& name, char const* why) {
        zero::detail::throw_error<InvalidArgument>({"zero: load(): parameter '", name, "' ", why,
                                                    " (rank ", tensors.rank(),
                                                    "); nothing was changed."});
    };
    for (std::size_t parameter = 0; parameter < tensors.size(); ++parameter) {
        ModuleTensor const& item = tensors[parameter];
        at::Tensor const* const values = state.find(item.name);
        if (values == nullptr) {
            refuse(item.name, "is missing in the given state");
        } else if (values->sizes() != item.tensor.sizes()) {
            refuse(item.name, "has another shape in the given state");
        }
    }
    auto const parameters = tensors.module().named_parameters();
    for (auto const& entry : state) {
        if (!parameters.contains(entry.key()) && !buffers.contains(entry.key())) {
            refuse(entry.key(), "of the given state is not in the module");
        }
    }
}

/// @brief Sets all parameters of the engine to rank 0's values of `state`, and the buffers that
/// `state` contains to the values of each rank. Collective, between steps; waits.
/// @throws InvalidArgument as `require_complete`; nothing was changed
template <class Zero>
void load_state(Zero& engine, ModuleTensors const& tensors,
                ::torch::OrderedDict<std::string, at::Tensor> const& state) {
    auto const buffers = tensors.module().named_buffers();
    require_complete(tensors, state, buffers);
    TrainingState all(engine);
    ::torch::NoGradGuard const no_gradients;
    for (std::size_t parameter = 0; parameter < tensors.size(); ++parameter) {
        auto const values =
            state[tensors[parameter].name].detach().to(at::kCPU, at::kFloat).contiguous();
        all.set_full_fp32_parameter(parameter, {values.template const_data_ptr<float>(),
                                                static_cast<std::size_t>(values.numel())});
    }
    for (auto const& buffer : buffers) {
        if (state.contains(buffer.key())) {
            at::Tensor target = buffer.value();
            target.copy_(state[buffer.key()]);
        }
    }
}

} // namespace ZERO_NAMESPACE::torch::detail
