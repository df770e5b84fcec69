#pragma once

#include "unit_runner.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <torch/csrc/autograd/grad_mode.h>
#include <utility>

namespace ZERO_NAMESPACE::torch::detail {

ZERO_COLD_INLINE UnitRunner::UnitRunner(ModuleTensors& tensors, UnitEngine& engine,
                                        bool refuses_unused)
    : _tensors(&tensors), _engine(&engine), _holders(tensors.units()), _calls(tensors.units()),
      _last_outer(tensors.units()), _lent(tensors.units()), _is_begun(tensors.units()),
      _refuses_unused(refuses_unused) {}

ZERO_INLINE void UnitRunner::enter(std::size_t unit) {
    if (unit >= _holders.size()) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: unit ", unit, " does not exist; the module was sharded with ", _holders.size(),
             " units (rank ", _tensors->rank(), ")."});
    }
    auto call = std::make_shared<Call>(Call{unit});
    if (!_forward.empty()) {
        call->outer = _forward.back();
    } else if (_is_running) { // an activation is recomputed
        call->outer = _last_outer[unit].lock();
    }
    if (!_is_running) {
        _last_outer[unit] = call->outer;
    }
    _forward.reserve(_forward.size() + 1);
    if (!is_whole) {
        if (_forward.empty()) { // otherwise the call is inside one that is still running
            close_to(call->outer.get());
        }
        hold(unit);
    }
    _forward.push_back(std::move(call));
}

ZERO_INLINE void UnitRunner::leave() noexcept {
    std::size_t const unit = _forward.back()->unit;
    _forward.pop_back();
    if (!is_whole) {
        drop(unit);
    }
}

ZERO_INLINE void UnitRunner::watch(std::vector<at::Tensor> const& outputs) {
    if (!::torch::GradMode::is_enabled()) {
        return;
    }
    std::shared_ptr<Call> const& call = _forward.back();
    bool is_watched = false;
    for (at::Tensor const& output : outputs) {
        if (output.defined() && output.requires_grad()) {
            output.register_hook([runner = weak_from_this(), call](at::Tensor const&) {
                auto const alive = runner.lock();
                if (alive == nullptr) {
                    zero::detail::throw_error<OutOfOrder>(
                        {"zero: the backward pass reached unit ", call->unit,
                         ", whose zero::torch::Sharded was destroyed; keep it while graphs live."});
                }
                alive->on_gradient(call);
            });
            is_watched = true;
        }
    }
    if (is_watched) {
        _calls[call->unit].push_back(call);
    }
}

ZERO_INLINE void UnitRunner::on_gradient(std::shared_ptr<Call> const& call) {
    if (!_is_running) {
        zero::detail::throw_error<OutOfOrder>(
            {"zero: the backward pass reached ", _tensors->unit_text(call->unit),
             " outside of sharded.backward() (rank ", _tensors->rank(),
             "); call sharded.backward(loss) instead of loss.backward()."});
    }
    if (call->pass != _pass) { // otherwise this is another output of the same call
        open(call);
    }
}

ZERO_INLINE void UnitRunner::hold(std::size_t unit) {
    if (_holders[unit] == 0) {
        std::vector<std::size_t> const& members = _tensors->members(unit);
        _addresses.assign(members.size(), nullptr);
        _engine->acquire(unit, _addresses);
        std::size_t shown = 0;
        try {
            for (; shown < members.size(); ++shown) {
                _tensors->show(members[shown], _addresses[shown]);
            }
        } catch (...) {
            while (shown-- > 0) {
                _tensors->hide(members[shown]);
            }
            _engine->release(unit);
            throw;
        }
    }
    ++_holders[unit];
}

ZERO_INLINE void UnitRunner::drop(std::size_t unit) noexcept {
    if (--_holders[unit] == 0) {
        for (std::size_t const parameter : _tensors->members(unit)) {
            _tensors->hide(parameter);
        }
        _engine->release(unit);
    }
}

/// Autograd reached a call: until it is closed, the parameters of its unit are readable and their
/// gradients lent.
ZERO_INLINE void UnitRunner::open(std::shared_ptr<Call> const& call) {
    close_to(call->outer.get());
    if (call->outer != nullptr && call->outer->pass != _pass) {
        open(call->outer); // the loss depends on it through this call alone
    }
    call->pass = _pass;
    _open.reserve(_open.size() + 1);
    hold(call->unit);
    _open.push_back(call);
    _is_begun[call->unit] = true;
    lend(call->unit);
}

ZERO_INLINE void UnitRunner::lend(std::size_t unit) {
    std::vector<std::size_t> const& members = _tensors->members(unit);
    _addresses.assign(members.size(), nullptr);
    _engine->lease(unit, _addresses);
    for (std::size_t member = 0; member < members.size(); ++member) {
        ModuleTensor const& item = (*_tensors)[members[member]];
        if (item.is_trainable && !item.is_leased) {
            _tensors->lend_gradient(members[member], _addresses[member]);
            _lent[unit].push_back(members[member]);
        }
    }
}

/// Closes the open calls inside `outer`, or all of them.
ZERO_INLINE void UnitRunner::close_to(Call const* outer) {
    while (!_open.empty() && _open.back().get() != outer) {
        std::size_t const unit = _open.back()->unit;
        _open.pop_back();
        drop(unit);
        if (!has_calls_left(unit)) {
            complete(unit);
        }
    }
}

/// Whether a call of a unit is open, or alive and not reached by this backward pass.
ZERO_INLINE bool UnitRunner::has_calls_left(std::size_t unit) const {
    for (std::shared_ptr<Call> const& call : _open) {
        if (call->unit == unit) {
            return true;
        }
    }
    for (std::weak_ptr<Call> const& call : _calls[unit]) {
        if (auto const alive = call.lock(); alive != nullptr && alive->pass != _pass) {
            return true;
        }
    }
    return false;
}

ZERO_INLINE void UnitRunner::complete(std::size_t unit) {
    _is_begun[unit] = false;
    _calls[unit].clear();
    std::vector<std::size_t> const lent = std::exchange(_lent[unit], {});
    std::optional<std::size_t> replaced;
    for (std::size_t const parameter : lent) {
        if (!_tensors->take_gradient(parameter)) {
            replaced = parameter;
        }
    }
    if (replaced) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: the gradient of parameter '", (*_tensors)[*replaced].name,
             "' was replaced during the backward pass (rank ", _tensors->rank(),
             "), by zero_grad(), by create_graph or by an assignment to grad; gradients must be "
             "added to the memory that the engine lent. Call cancel_step() to go on."});
    }
    _engine->ready(unit);
}

/// The engine sees only that the memory of a gradient was lent, not whether anything was added.
ZERO_COLD_INLINE void UnitRunner::require_all_used() const {
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        ModuleTensor const& item = (*_tensors)[parameter];
        if (item.is_trainable && !item.is_used) {
            zero::detail::throw_error<UnusedParameter>(
                {"zero: the backward pass added nothing to the gradient of parameter '", item.name,
                 "' (rank ", _tensors->rank(),
                 "). If the module uses another tensor in its place, set values by load() instead; "
                 "if it is unused, freeze it, or set unused_parameters to "
                 "UnusedParameters::zero."});
        }
    }
}

ZERO_INLINE void UnitRunner::reset() noexcept {
    for (; !_open.empty(); _open.pop_back()) {
        drop(_open.back()->unit);
    }
    for (std::size_t unit = 0; unit < _lent.size(); ++unit) {
        for (std::size_t const parameter : std::exchange(_lent[unit], {})) {
            (void)_tensors->take_gradient(parameter);
        }
        _calls[unit].clear();
        _is_begun[unit] = false;
    }
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        (*_tensors)[parameter].tensor.mutable_grad().reset();
    }
    _is_running = false;
}

ZERO_INLINE void UnitRunner::backward(at::Tensor const& loss) {
    if (is_whole) {
        zero::detail::throw_error<OutOfOrder>(
            {"zero: backward() after materialize() (rank ", _tensors->rank(),
             "): the tensors hold copies, which are not trained; call shard() first."});
    }
    _tensors->require_unchanged();
    _tensors->require_no_stray_gradient();
    ++_pass;
    _is_running = true;
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        (*_tensors)[parameter].is_used = false;
    }
    try {
        loss.backward();
        close_to(nullptr);
        for (std::size_t unit = _is_begun.size(); unit-- > 0;) {
            if (_is_begun[unit]) { // some of its forward calls had no effect on the loss
                complete(unit);
            }
        }
        _is_running = false;
        _tensors->require_no_stray_gradient();
        if (_refuses_unused) {
            require_all_used();
        }
    } catch (...) {
        reset();
        throw;
    }
}

ZERO_COLD_INLINE void UnitRunner::require_idle(char const* call) const {
    for (std::size_t unit = 0; unit < _holders.size(); ++unit) {
        if (_holders[unit] != 0) {
            zero::detail::throw_error<OutOfOrder>({"zero: ", call, " inside ",
                                                   _tensors->unit_text(unit), " (rank ",
                                                   _tensors->rank(), "); call it between steps."});
        }
    }
}

} // namespace ZERO_NAMESPACE::torch::detail
