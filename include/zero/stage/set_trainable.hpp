#pragma once

#include "../comm/detail/optional_operations.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/flat_layout.hpp"
#include "../layout/parameter_spec.hpp"
#include "detail/common/engine_config.hpp"
#include "detail/engine/engine_rebuild.hpp"
#include "detail/state/state_access.hpp"
#include "engine.hpp"
#include "parameter.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Freezes and thaws parameters of an engine. Implements `set_trainable`.
///
/// Frozen parameters lie in the buckets from `FlatLayout::trainable_buckets` on. The stores of
/// gradients and states end before them.
template <class Config>
class Thaw {
    static_assert(
        !codes_weights<Config> && !codes_frozen<Config> && !keeps_errors<Config>,
        "zero::set_trainable: zero::Wire and zero::FrozenWeights keep codes and errors by bucket, "
        "and this call makes other buckets; save a checkpoint, and load it with may_thaw into an "
        "engine whose registration says what is trainable.");

public:
    explicit Thaw(Engine<Config>& engine)
        : _access(engine), _rebuild(engine), _parameters(_rebuild.registered()) {}

    /// Sets whether the parameters for which `is_chosen(spec)` holds are trainable.
    /// @return how many there are
    template <class IsChosen>
    std::size_t choose(bool is_trainable, IsChosen const& is_chosen) {
        std::size_t chosen = 0;
        for (AnyParameter& parameter : _parameters) {
            if (is_chosen(std::as_const(parameter.spec))) {
                ++chosen;
                change(parameter, is_trainable);
            }
        }
        return chosen;
    }

    void run() {
        _access.wait_to_write(call);
        if (_access.options().storage == Storage::adopted) {
            refuse(
                "an adopted block is cut where its trainable parameters lie; use another storage");
        }
        std::vector<std::size_t> const order(_access.layout().unit_order().begin(),
                                             _access.layout().unit_order().end());
        FlatLayout next = _rebuild.layout_of(_parameters, as_span(order));
        std::exception_ptr difference;
        _access.guard([&] {
            try {
                _rebuild.require_agreement_on(next, call);
            } catch (LayoutMismatch const&) { // on every rank, and nothing was changed
                difference = std::current_exception();
            }
        });
        if (difference) {
            std::rethrow_exception(difference);
        }
        std::vector<std::uint64_t> updates = _access.updates();
        bool is_same = true;
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            bool const is_trainable = _parameters[index].spec.trainable;
            if (is_trainable != _access.layout().parameter(index).trainable) {
                is_same = false;
                updates[index] = is_trainable ? 0 : updates[index];
            }
        }
        _access.guard([&] {
            _rebuild.count_again(_parameters, next); // another part of the model may have changed
            if (!is_same) {
                _rebuild.replace(_parameters, std::move(next));
            }
        });
        if (!is_same) {
            _access.set_updates(as_span(updates));
        }
    }

    [[noreturn]] void refuse(std::string_view why) const {
        throw_error<InvalidArgument>({"zero: ", call, " on rank ", _access.rank(), ": ", why, "."});
    }

private:
    static constexpr char const* call = "set_trainable()";

    void change(AnyParameter& parameter, bool is_trainable) const {
        if (parameter.spec.trainable != is_trainable && parameter.gradient != nullptr) {
            refuse(text({"parameter '", parameter.spec.name,
                         "' was registered with memory for its gradient, which a frozen one cannot "
                         "have; leave '.gradient' out of its registration, and hand its gradients "
                         "over or write them into the engine's memory"}));
        }
        parameter.spec.trainable = is_trainable;
    }

    StateAccess<Config> _access;
    EngineRebuild<Config> _rebuild;
    std::vector<AnyParameter> _parameters;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Freezes parameters, or makes frozen ones trainable, between two steps.
///
///     zero::set_trainable(engine, {"backbone.weight", "backbone.bias"}, true);
///     zero::set_trainable(engine, group, false); // all parameters of a group
///
/// The buckets are made again as by `rebuild_buckets`, and parameters and states move in memory. A
/// parameter that is thawed starts like a new one: states at their initial values, master weights
/// equal to the parameter, and 0 updates for its bias correction. One that is frozen keeps its
/// value as the parameter type holds it; its master weights, states and gradients are given back.
/// Everything else continues with the same bits, which are those of a checkpoint that is loaded
/// with `may_thaw` into a new engine.
///
/// Collective: every rank passes the same names and waits. Handles, views (`TrainingState`) and
/// captured graphs of before are invalid after it; `layout()` and the memory plan are new. Old and
/// new parameters, master weights and states exist at the same time for a moment. If nothing
/// changes, nothing is moved. Gradients of a thawed parameter lie in the engine's memory.
/// @param names of parameters as they were registered; the name of a parameter in tiles means all
/// of them
/// @throws InvalidArgument for an unknown name, adopted storage, and parameters with registered
/// gradients; OutOfOrder inside a step, while a handle is held or states are away; LayoutMismatch
/// on every rank if the ranks differ. Nothing was changed, and the engine remains usable
template <class Config>
[[gnu::cold]] void set_trainable(Engine<Config>& engine, std::span<std::string const> names,
                                 bool is_trainable) {
    detail::Thaw<Config> thaw(engine);
    for (std::string const& name : names) {
        auto const is_named = [&](ParameterSpec const& spec) {
            return spec.name == name || spec.tile.of == name;
        };
        if (name.empty() || thaw.choose(is_trainable, is_named) == 0) {
            thaw.refuse(detail::text({"no parameter has the name '", name,
                                      "'; engine.layout().parameters() lists all names"}));
        }
    }
    thaw.run();
}

/// @brief The same for a list of names in braces.
template <class Config>
void set_trainable(Engine<Config>& engine, std::initializer_list<std::string> names,
                   bool is_trainable) {
    set_trainable(engine, std::span<std::string const>(names.begin(), names.size()), is_trainable);
}

/// @brief The same for all parameters of a group. @throws InvalidArgument if no parameter is in it
template <class Config>
[[gnu::cold]] void set_trainable(Engine<Config>& engine, std::size_t group, bool is_trainable) {
    detail::Thaw<Config> thaw(engine);
    auto const is_in = [&](ParameterSpec const& spec) { return spec.group == group; };
    if (thaw.choose(is_trainable, is_in) == 0) {
        thaw.refuse(detail::text({"no parameter is in group ", group}));
    }
    thaw.run();
}

} // namespace ZERO_NAMESPACE
