#pragma once

#include "gradient_hooks.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace ZERO_NAMESPACE::torch::detail {

struct GradientHooks::Hook final : ::torch::autograd::PostAccumulateGradHook {
    Hook(std::weak_ptr<GradientHooks> owner, std::size_t number)
        : hooks(std::move(owner)), parameter(number) {}

    void operator()(at::Tensor const& /*tensor*/) override {
        if (auto const alive = hooks.lock()) {
            alive->on_gradient(parameter);
        }
    }

    std::weak_ptr<GradientHooks> hooks;
    std::size_t parameter;
};

ZERO_COLD_INLINE GradientHooks::GradientHooks(ModuleTensors& tensors, GradientReceiver& receiver)
    : _tensors(&tensors), _receiver(&receiver), _trainable(tensors.units()) {
    for (std::size_t unit = 0; unit < tensors.units(); ++unit) {
        for (std::size_t const parameter : tensors.members(unit)) {
            _trainable[unit] += tensors[parameter].is_trainable ? 1 : 0;
        }
    }
}

ZERO_COLD_INLINE GradientHooks::~GradientHooks() {
    for (std::size_t parameter = 0; _is_attached && parameter < _tensors->size(); ++parameter) {
        ModuleTensor const& item = (*_tensors)[parameter];
        if (item.is_trainable) {
            ::torch::autograd::impl::post_acc_grad_hooks(item.tensor).reset();
        }
    }
}

ZERO_COLD_INLINE void GradientHooks::attach() {
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        ModuleTensor const& item = (*_tensors)[parameter];
        if (item.is_trainable
            && ::torch::autograd::impl::post_acc_grad_hooks(item.tensor) != nullptr) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: parameter '", item.name, "' has a post-accumulate hook (rank ",
                 _tensors->rank(),
                 "); remove it, or end the zero::torch::Replicated that set it."});
        }
    }
    _is_attached = true;
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        ModuleTensor const& item = (*_tensors)[parameter];
        if (item.is_trainable) {
            ::torch::autograd::impl::set_post_acc_grad_hooks(
                item.tensor, std::make_unique<Hook>(weak_from_this(), parameter));
        }
    }
}

ZERO_INLINE void GradientHooks::on_gradient(std::size_t parameter) {
    ModuleTensor const& item = (*_tensors)[parameter];
    at::Tensor gradient = std::exchange(item.tensor.mutable_grad(), at::Tensor());
    if (!_is_running) {
        _tensors->refuse_foreign_backward("parameter '" + item.name + '\'');
    }
    if (gradient.layout() != at::kStrided || gradient.requires_grad()) {
        zero::detail::throw_error<InvalidArgument>({"zero: the gradient of parameter '", item.name,
                                                    "' is sparse, or has a graph of its own (rank ",
                                                    _tensors->rank(),
                                                    "); use dense gradients and no create_graph."});
    }
    _receiver->receive(parameter, gradient.contiguous());
    for (std::size_t const unit : item.units) {
        if (--_missing[unit] == 0) {
            _receiver->ready(unit);
        }
    }
}

ZERO_INLINE void GradientHooks::backward(at::Tensor const& loss) {
    _tensors->require_trainable(loss);
    _tensors->require_in_place();
    _tensors->require_no_stray_gradient();
    _missing = _trainable;
    _is_running = true;
    try {
        RunningBackward const running;
        loss.backward();
        for (std::size_t unit = _missing.size(); unit-- > 0;) {
            if (_missing[unit] != 0 && _missing[unit] != _trainable[unit]) {
                _receiver->ready(unit); // the loss does not depend on all of its parameters
            }
        }
    } catch (...) {
        _is_running = false;
        drop_gradients();
        throw;
    }
    _is_running = false;
}

ZERO_COLD_INLINE void GradientHooks::drop_gradients() noexcept {
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        (*_tensors)[parameter].tensor.mutable_grad().reset();
    }
}

} // namespace ZERO_NAMESPACE::torch::detail
