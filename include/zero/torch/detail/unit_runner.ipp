#pragma once

#include "unit_runner.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <torch/csrc/autograd/engine.h>
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
    call->is_paused = _tensors->is_paused();
    bool const is_backward = _is_running || !_open.empty(); // it may be that of another adapter
    if (!_forward.empty()) {
        call->outer = _forward.back();
    } else if (is_backward) { // an activation is recomputed
        call->outer = _last_outer[unit].lock();
    }
    if (!is_backward) {
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
    if (is_whole && call->is_paused) {
        return;
    }
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
    if (is_watched && !call->is_paused) {
        _calls[call->unit].push_back(call);
    }
}

ZERO_INLINE void UnitRunner::on_gradient(std::shared_ptr<Call> const& call) {
    if (call->is_paused) {
        open_paused(call);
        return;
    }
    if (!_is_running) {
        _tensors->refuse_foreign_backward(_tensors->unit_text(call->unit));
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

/// The backward pass, usually of another adapter, reads the parameters of a call and trains none.
ZERO_INLINE void UnitRunner::open_paused(std::shared_ptr<Call> const& call) {
    for (std::shared_ptr<Call> const& open : _open) {
        if (open == call) { // this is another of its outputs
            return;
        }
    }
    if (is_whole) {
        return;
    }
    if (!_is_running && _open.empty()) { // the first one
        ::torch::autograd::Engine::get_default_engine().queue_callback([runner = weak_from_this()] {
            if (auto const alive = runner.lock()) {
                alive->end_foreign_backward();
            }
        });
    }
    close_to(call->outer.get());
    _open.reserve(_open.size() + 1);
    hold(call->unit);
    _open.push_back(call);
}

ZERO_INLINE void UnitRunner::end_foreign_backward() noexcept {
    for (; !_is_running && !_open.empty(); _open.pop_back()) {
        drop(_open.back()->unit);
    }
}

ZERO_INLINE void UnitRunner::lend(std::size_t unit) {
    std::vector<std::size_t> const& members = _tensors->members(unit);
    _addresses.assign(members.size(), nullptr);
    try {
        _engine->lease(unit, _addresses);
    } catch (OutOfOrder const&) {
        refuse_repetition();
        throw;
    }
    for (std::size_t member = 0; member < members.size(); ++member) {
        ModuleTensor const& item = (*_tensors)[members[member]];
        if (item.is_trainable && !item.is_leased) {
            _tensors->lend_gradient(members[member], _addresses[member]);
            _lent[unit].push_back(members[member]);
        }
    }
}

ZERO_COLD_INLINE void UnitRunner::refuse_repetition() const {
    for (std::size_t unit = 0; unit < _calls.size(); ++unit) {
        std::size_t alive = 0;
        for (std::weak_ptr<Call> const& call : _calls[unit]) {
            alive += call.expired() ? 0U : 1U;
        }
        if (_is_begun[unit] && alive > 1) {
            zero::detail::throw_error<OutOfOrder>(
                {"zero: ", _tensors->unit_text(unit), " ran ", alive, " times in this graph (rank ",
                 _tensors->rank(),
                 "), so its gradients stay lent until the backward pass has reached all of its "
                 "calls, and no gradient lease is free. Run each unit once, on the joined batch: "
                 "torch::cat({a, b}); or set options.extra_leases to ",
                 _engine->leases_of_all(), "."});
        }
    }
}

/// Closes the open calls inside `outer`, or all of them.
ZERO_INLINE void UnitRunner::close_to(Call const* outer) {
    while (!_open.empty() && _open.back().get() != outer) {
        std::size_t const unit = _open.back()->unit;
        bool const is_trained = !_open.back()->is_paused;
        _open.pop_back();
        drop(unit);
        if (is_trained && !has_calls_left(unit)) {
            complete(unit);
        }
    }
}

/// Whether a call of a unit is open, or alive and not reached by this backward pass.
ZERO_INLINE bool UnitRunner::has_calls_left(std::size_t unit) const {
    for (std::shared_ptr<Call> const& call : _open) {
        if (call->unit == unit && !call->is_paused) {
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
    _tensors->require_trainable(loss);
    _tensors->require_no_stray_gradient();
    end_foreign_backward();
    ++_pass;
    _is_running = true;
    for (std::size_t parameter = 0; parameter < _tensors->size(); ++parameter) {
        (*_tensors)[parameter].is_used = false;
    }
    try {
        RunningBackward const running;
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
