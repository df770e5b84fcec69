#pragma once

#include "protocol.hpp"

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE std::string Protocol::rank_text() const {
    return text({"rank ", _rank});
}

ZERO_INLINE void Protocol::break_down(char const* cause) noexcept {
    _phase = Phase::broken;
    try {
        _failure = cause;
    } catch (...) { // the engine is broken even if there is no memory for the text
    }
}

ZERO_INLINE void Protocol::require_alive() const {
    if (_phase == Phase::broken) {
        throw_error<BrokenEngine>({"zero: this engine failed earlier (", _failure,
                                   ") and cannot continue; its state can be read. Make a new "
                                   "engine and communicator."});
    }
}

ZERO_INLINE void Protocol::require_idle(char const* call, StateUse use) const {
    require(_phase == Phase::idle || has_states_back(call, use), call, inside_step);
}

ZERO_INLINE void Protocol::require_may_begin_step() const {
    if (!may_settle()) {
        require_idle("begin_step()");
    }
}

ZERO_INLINE void Protocol::require_may_acquire() const {
    if (_phase >= Phase::broken && !has_states_back("acquire()", StateUse::read_parameters)) {
        require_alive();
    }
}

ZERO_COLD_INLINE void Protocol::require_settled(char const* call) const {
    if (_phase != Phase::broken) { // which `require` refuses
        require(!is_update_pending(), call,
                " while the update of the last step is pending (zero::DelayedUpdate); call "
                "engine.settle() on every rank first, between two steps");
    }
}

ZERO_COLD_INLINE void Protocol::require_between_steps(char const* call) const {
    require_settled(call);
    require(_phase == Phase::idle || is_away(), call, inside_step);
    require_no_visit(call);
}

ZERO_COLD_INLINE void Protocol::require_no_visit(char const* call) const {
    require(_visits == 0, call, " in a visitor of states or parameters; call it after the visit");
}

ZERO_COLD_INLINE bool Protocol::has_states_back(char const* call, StateUse use) const {
    require_settled(call);
    if (!is_away()) {
        return false;
    }
    _parked->require_here(call, use);
    return true;
}

ZERO_INLINE void Protocol::require_step(char const* call) const {
    require(is_in_step(), call, " outside a step; call begin_step() first");
}

ZERO_INLINE void Protocol::require_micro_step(char const* call) const {
    require(_phase == Phase::in_micro_step, call,
            " outside a micro-step; call it inside the loop over micro_steps(n), or between "
            "begin_micro_step() and end_micro_step()");
}

ZERO_INLINE void Protocol::require_gradient_call(char const* call) const {
    char const* const of_adapter = _layout->backward_call();
    require_micro_step(of_adapter != nullptr ? of_adapter : call);
}

ZERO_INLINE void
Protocol::require_may_begin_micro_step(bool is_only,
                                       GradientReductionOptions const& reduction) const {
    require(is_in_step(), "begin_micro_step()",
            " (or micro_steps()) outside a step; call begin_step() first");
    require(_phase == Phase::in_step, "begin_micro_step()", left_early);
    require(!_is_announced, "begin_micro_step()",
            " after the micro-step that was announced as the last, or after gradient_norms(); "
            "call step()");
    require(!reduction.one_micro_step || _micro_steps == 0, "begin_micro_step()",
            " a second time in a step, although reduction.one_micro_step says that every step has "
            "one micro-step; pass the gradients of all micro-batches as one micro-step, or leave "
            "that option out");
    require(!is_only || _micro_steps == 0, "begin_micro_step()",
            " a second time in a step, whose gradients lie in a block beside the adopted block and "
            "are reduced in place; add the gradients of all micro-batches in that block and pass "
            "them as one micro-step, or set ReductionSchedule::every_micro_step");
}

ZERO_COLD_INLINE void Protocol::require_micro_steps(char const* call, std::size_t count,
                                                    std::size_t micro_batches) const {
    std::size_t const steps = micro_batches / _layout->world();
    if (count != steps) {
        throw_error<OutOfOrder>({"zero: ", call, " with ", count,
                                 " micro-steps, but reduction.micro_batches = ", micro_batches,
                                 " on ", _layout->world(), " ranks are ", steps,
                                 " in every step; make exactly these (", rank_text(), ")."});
    }
}

ZERO_INLINE void Protocol::require_micro_step_of(std::size_t micro_batches, bool is_last) const {
    std::size_t const steps = micro_batches / _layout->world();
    if (_micro_steps >= steps || (is_last && _micro_steps + 1 != steps)) {
        require_micro_steps("begin_micro_step()", _micro_steps + 1, micro_batches);
    }
}

ZERO_INLINE void Protocol::require_accumulated(char const* call) const {
    require(is_in_step(), call, " outside a step; call begin_step() first");
    require(_phase == Phase::in_step, call, left_early);
    require(_micro_steps != 0, call,
            " without a micro-step; call begin_micro_step() and end_micro_step(), or use "
            "micro_steps(n)");
}

ZERO_INLINE void Protocol::require_may_step(double learning_rate) const {
    require_accumulated("step()");
    require_rate(learning_rate, "learning rate");
}

ZERO_INLINE void Protocol::require_alone() const {
    if (_is_joint) {
        throw_error<OutOfOrder>({"zero: step() of an engine of a JointStep, whose decision is one; "
                                 "call its step() (",
                                 rank_text(), ")."});
    }
}

ZERO_INLINE void Protocol::require_weight(std::optional<std::int64_t> weight,
                                          bool is_weighted) const {
    if (weight.has_value() != is_weighted) {
        throw InvalidArgument(is_weighted ? "zero: step() needs the weight of this rank's "
                                            "gradients: reduction.kind is weighted_mean."
                                          : "zero: step() got a weight, which would be "
                                            "ignored; set reduction.kind to weighted_mean.");
    }
    if (weight.value_or(0) < 0 || weight.value_or(0) > largest_weight) {
        throw_error<InvalidArgument>({"zero: the weight of a step is ", *weight,
                                      "; it must be at least 0 and at most 2^42 (", rank_text(),
                                      ")."});
    }
}

ZERO_INLINE void Protocol::require_nothing_held(char const* call) const {
    require_alive();
    for (std::size_t unit = 0; _handles != 0 && unit < _held.size(); ++unit) {
        if (_held[unit] != 0) {
            throw_error<OutOfOrder>({"zero: ", call, " while weights of ", member_text(unit),
                                     " are held; release all handles first (", rank_text(), ")."});
        }
    }
}

ZERO_COLD_INLINE void Protocol::open_write(std::span<std::size_t const> parameters) {
    for (std::size_t const parameter : parameters) {
        for (std::size_t const open : _written) {
            if (open == parameter) {
                throw_error<OutOfOrder>(
                    {"zero: parameter '", _layout->parameter(parameter).name,
                     "' is gathered for writing twice; end the first gather, or write through it (",
                     rank_text(), ")."});
            }
        }
    }
    for (std::size_t const parameter : parameters) {
        _written.push_back(parameter);
    }
    ++_handles;
}

ZERO_COLD_INLINE void Protocol::close_write(std::span<std::size_t const> parameters) noexcept {
    std::size_t kept = 0;
    for (std::size_t const open : _written) {
        bool is_closed = false;
        for (std::size_t const parameter : parameters) {
            is_closed = is_closed || parameter == open;
        }
        if (!is_closed) {
            _written[kept++] = open;
        }
    }
    while (_written.size() > kept) {
        _written.pop_back();
    }
    --_handles;
}

ZERO_INLINE void Protocol::require_nothing_written(char const* call) const {
    if (!_written.empty()) {
        throw_error<OutOfOrder>(
            {"zero: ", call, " while parameter '", _layout->parameter(_written.front()).name,
             "' is gathered for writing; end that gather, or call its commit(), "
             "first (",
             rank_text(), ")."});
    }
}

ZERO_INLINE std::string Protocol::member_text(std::size_t unit) const {
    auto const members = _layout->unit_parameters(unit);
    return members.empty() ? _layout->unit_text(unit)
                           : text({_layout->unit_text(unit), " (parameter '",
                                   _layout->parameter(members.front()).name, "')"});
}

ZERO_INLINE void Protocol::require_rate(double rate, char const* what) const {
    if (!is_non_negative_float(rate)) {
        throw_error<InvalidArgument>({"zero: the ", what, " is ", rate,
                                      "; it must be finite as a float and not negative (",
                                      rank_text(), ")."});
    }
}

ZERO_INLINE void Protocol::require_group(std::size_t group, std::size_t groups) const {
    if (group >= groups) {
        throw_error<InvalidArgument>({"zero: parameter group ", group,
                                      " does not exist; there are ", groups, ", numbered from 0 (",
                                      rank_text(), "); list them in options.groups."});
    }
}

ZERO_INLINE void Protocol::require_unit(std::size_t unit) const {
    if (unit >= _layout->units()) {
        throw_error<InvalidArgument>(
            {"zero: unit ", unit, " does not exist; the registered parameters name ",
             _layout->units() == 0 ? std::string("none")
                                   : text({"units 0 to ", _layout->units() - 1}),
             '.'});
    }
}

ZERO_INLINE void Protocol::require_member(std::size_t unit, std::size_t parameter) const {
    require_unit(unit);
    if (_layout->is_member(unit, parameter)) {
        return;
    }
    throw_error<InvalidArgument>(
        {"zero: parameter number ", parameter,
         (parameter < _layout->parameters().size()
              ? text({" ('", _layout->parameter(parameter).name, "')"})
              : std::string()),
         " is not one of ", _layout->unit_text(unit),
         "; handles take registration indices, and the parameter ",
         (parameter < _layout->parameters().size()
              ? text({"lists units ", units_of(_layout->parameter(parameter))})
              : std::string("is not registered")),
         '.'});
}

ZERO_INLINE std::size_t Protocol::parameter_at(std::size_t unit, std::size_t position) const {
    auto const parameters = _layout->unit_parameters(unit);
    if (position >= parameters.size()) {
        throw_error<InvalidArgument>(
            {"zero: at(", position, ") of ", _layout->unit_text(unit), ", which has ",
             parameters.size(), " parameters (", rank_text(),
             "); at() counts the parameters of the unit from 0, in order of registration. "
             "operator[] takes registration indices."});
    }
    return parameters[position];
}

ZERO_INLINE void Protocol::require_not_ready(Readiness const& readiness, std::size_t unit) const {
    require_unit(unit);
    if (readiness.is_unit_ready(unit)) {
        if (char const* const call = _layout->backward_call()) {
            throw_error<LateGradient>(
                {"zero: gradients of ", member_text(unit),
                 " come from a second backward pass of this micro-step (", rank_text(), "); call ",
                 call,
                 " once for each micro-step, with the sum of all its losses. Call cancel_step() to "
                 "go on."});
        }
        throw_error<LateGradient>(
            {"zero: gradients of ", member_text(unit), " come after gradients_ready(", unit,
             ") in this micro-step (", rank_text(),
             "); call gradients_ready() only after the last gradient of the unit."});
    }
}

ZERO_INLINE void Protocol::require_used(std::size_t unit, bool is_acquired,
                                        GradientDeliveries const& deliveries) const {
    if (is_acquired) {
        return;
    }
    for (std::size_t const parameter : _layout->unit_parameters(unit)) {
        ParameterSpec const& spec = _layout->parameter(parameter);
        if (spec.elements == 0 || spec.gradient == GradientMemory::engine
            || deliveries.is_begun(parameter)) {
            continue;
        }
        throw_error<OutOfOrder>(
            {"zero: gradients_ready() of unit ", unit,
             " without acquire() since the last micro-step, "
             "so no backward pass has written the registered gradient of '",
             spec.name, "' (", rank_text(),
             "); call it after the backward pass of the unit. A rank that does not use the unit "
             "calls skip() first."});
    }
}

ZERO_INLINE void Protocol::require_current_gradient(Readiness const& readiness, std::size_t unit,
                                                    std::size_t parameter,
                                                    std::uint64_t micro_step) const {
    require_alive();
    require_member(unit, parameter);
    if (_phase != Phase::in_micro_step || micro_step != _micro_step_serial
        || readiness.is_unit_ready(unit)) {
        throw_error<LateGradient>(
            {"zero: the gradient of parameter '", _layout->parameter(parameter).name,
             "' is requested after gradients_ready(", unit, ") or after its micro-step (",
             rank_text(), "); call gradients(", unit, ") again in the next micro-step."});
    }
}

ZERO_INLINE void Protocol::require_transient_gradient(std::size_t parameter, void const* gradient,
                                                      DType type, std::size_t elements,
                                                      bool is_in_callers_memory) const {
    auto const& spec = _layout->parameter(parameter);
    if (elements != spec.elements || !spec.trainable) {
        throw_error<InvalidArgument>(
            {"zero: the gradient handed over for parameter '", spec.name, "' has ", elements,
             " elements, but the parameter has ", spec.elements,
             (spec.trainable ? "; hand over all of them" : " and is frozen; hand over none"), " (",
             rank_text(), ")."});
    }
    if (is_in_callers_memory) {
        throw_error<InvalidArgument>({"zero: the gradient of parameter '", spec.name,
                                      "' is registered in the caller's memory, which conflicts "
                                      "with hand_over(); use one of the two."});
    }
    if (auto const address = reinterpret_cast<std::uintptr_t>(gradient);
        elements != 0 && (address == 0 || address % size_of(type) != 0)) {
        throw_error<InvalidArgument>(
            {"zero: the gradient handed over for parameter '", spec.name,
             address == 0 ? "' lies nowhere (a null pointer); hand over where its "
                          : "' does not begin at a multiple of the bytes of an element; align its ",
             elements, address == 0 ? " elements are (" : " elements (", rank_text(), ")."});
    }
}

ZERO_INLINE void Protocol::refuse_type(std::size_t parameter, char const* what, char const* has,
                                       char const* asked) const {
    throw_error<InvalidArgument>({"zero: parameter '", _layout->parameter(parameter).name,
                                  "' has the ", what, ' ', has, ", not ", asked, "; use ", has,
                                  " (", rank_text(), ")."});
}

ZERO_INLINE ParameterSpec const* Protocol::registered_member(std::size_t unit) const {
    for (std::size_t const parameter : _layout->unit_parameters(unit)) {
        ParameterSpec const& spec = _layout->parameter(parameter);
        if (spec.elements != 0 && spec.gradient != GradientMemory::engine) {
            return &spec;
        }
    }
    return nullptr;
}

ZERO_INLINE std::size_t Protocol::first_unused(Readiness const& readiness,
                                               GradientDeliveries const& deliveries) const {
    std::size_t first = 0;
    while (first < _layout->parameters().size() && readiness.is_parameter_ready(first)) {
        ++first;
    }
    for (std::size_t unit = 0; unit < _layout->units(); ++unit) {
        if (registered_member(unit) == nullptr) {
            continue;
        }
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            ParameterSpec const& spec = _layout->parameter(parameter);
            if (parameter < first && spec.trainable && spec.elements != 0
                && spec.gradient == GradientMemory::engine && !deliveries.is_taken(parameter)) {
                first = parameter;
            }
        }
    }
    return first;
}

ZERO_INLINE void Protocol::require_all_used(std::span<std::uint64_t const> first_unused) const {
    std::size_t const count = _layout->parameters().size();
    std::size_t missing = count;
    std::string ranks;
    for (std::size_t rank = 0; rank < first_unused.size(); ++rank) {
        std::size_t const parameter = first_unused[rank];
        ranks +=
            text({(rank == 0 ? "rank " : ", rank "), rank,
                  (parameter < count ? text({" lacks '", _layout->parameter(parameter).name, "'"})
                                     : std::string(" has all"))});
        missing = missing == count ? parameter : missing;
    }
    if (missing < count) {
        ParameterSpec const& spec = _layout->parameter(missing);
        char const* const call = _layout->backward_call();
        std::string remedy =
            call != nullptr
                ? text({"call ", call, " on every rank, with a loss that depends on it"})
                : text({"call gradients_ready() for ",
                        (spec.units.size() > 1 ? "each of units " : "unit "), units_of(spec),
                        " after its backward pass"});
        for (std::size_t const unit : spec.units) {
            ParameterSpec const* const sibling = registered_member(unit);
            if (call == nullptr && spec.gradient == GradientMemory::engine && sibling) {
                remedy += text({"; its gradient lies in the engine's memory while that of '",
                                sibling->name,
                                "' is registered: register its 'gradient' as well, or write it to "
                                "gradients(",
                                unit, ")[", missing, "], or hand it over"});
                break;
            }
        }
        throw_error<UnusedParameter>(
            {"zero: parameter '", spec.name,
             "' got no gradient in this micro-step, or it was not reported (", rank_text(),
             (first_unused.size() > 1 ? text({"; ", ranks}) : std::string()), "); ", remedy,
             ", freeze the parameter, or set unused_parameters to UnusedParameters::zero or "
             "UnusedParameters::leave."});
    }
}

ZERO_INLINE std::string Protocol::units_of(ParameterSpec const& spec) {
    std::string units;
    for (std::size_t const unit : spec.units) {
        units += text({units.empty() ? "" : ", ", unit});
    }
    return units;
}

ZERO_INLINE void Protocol::require(bool holds, char const* call, char const* why) const {
    require_alive();
    if (!holds) {
        throw_error<OutOfOrder>({"zero: ", call, why, " (", rank_text(), ")."});
    }
}

} // namespace ZERO_NAMESPACE::detail
