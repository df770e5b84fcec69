#pragma once

/// @file
/// @brief Changes the parameters of an engine between two steps: which are trainable, and which
/// there are.

#include "../comm/detail/optional_operations.hpp"
#include "../comm/grouped_communicator.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/flat_layout.hpp"
#include "../layout/parameter_spec.hpp"
#include "detail/common/engine_config.hpp"
#include "detail/engine/engine_rebuild.hpp"
#include "detail/registration/make_stage_layout.hpp"
#include "detail/state/state_access.hpp"
#include "engine.hpp"
#include "parameter.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Changes the parameters of an engine between two steps. Implements `set_trainable`,
/// `add_parameters` and `remove_parameters`.
///
/// Frozen parameters lie in the buckets from `FlatLayout::trainable_buckets` on. The stores of
/// gradients and states end before them.
template <class Config>
class LiveChange {
    static_assert(
        !codes_weights<Config> && !codes_frozen<Config> && !keeps_errors<Config>,
        "zero::set_trainable, add_parameters, remove_parameters: zero::Wire and "
        "zero::FrozenWeights keep codes and errors by bucket, and these calls make other buckets; "
        "save a checkpoint, and load it with may_thaw into an engine whose registration says what "
        "is trainable, or with may_differ into one with other parameters.");

public:
    /// @param call the public function, for messages
    LiveChange(Engine<Config>& engine, char const* call)
        : _access(engine), _rebuild(engine), _call(call), _parameters(_rebuild.registered()) {
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            _origins.push_back(index);
        }
    }

    /// Calls `change(index)` for the parameters for which `is_chosen(spec)` holds.
    /// @return how many there are
    template <class IsChosen, class Change>
    std::size_t choose(IsChosen const& is_chosen, Change const& change) {
        std::size_t chosen = 0;
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            if (is_chosen(std::as_const(_parameters[index].spec))) {
                ++chosen;
                change(index);
            }
        }
        return chosen;
    }

    /// The same for names. The name of a parameter in tiles means all of them.
    template <class Change>
    void choose(std::span<std::string const> names, Change const& change) {
        for (std::string const& name : names) {
            auto const is_named = [&](ParameterSpec const& spec) {
                return spec.name == name || spec.tile.of == name;
            };
            if (name.empty() || choose(is_named, change) == 0) {
                refuse(text({"no parameter has the name '", name,
                             "'; engine.layout().parameters() lists all names"}));
            }
        }
    }

    void set_trainable(std::size_t index, bool is_trainable) {
        AnyParameter& parameter = _parameters[index];
        if (parameter.spec.trainable != is_trainable && parameter.gradient != nullptr) {
            refuse(text({"parameter '", parameter.spec.name,
                         "' was registered with memory for its gradient, which a frozen one cannot "
                         "have; leave '.gradient' out of its registration, and hand its gradients "
                         "over or write them into the engine's memory"}));
        }
        parameter.spec.trainable = is_trainable;
    }

    void remove(std::size_t index) { _origins[index] = none; }

    /// Appends parameters.
    void add(std::span<typename Engine<Config>::Registration const> parameters) {
        std::size_t const groups = _access.control().group_count();
        for (AnyParameter& added : register_parameters<Config>(parameters)) {
            if (added.spec.group >= groups) {
                refuse(text({"parameter '", added.spec.name, "' is in group ", added.spec.group,
                             ", and an engine keeps the ", groups,
                             " groups of its construction; for a group that comes later, register "
                             "a parameter without elements in it"}));
            }
            _parameters.push_back(std::move(added));
            _origins.push_back(none);
        }
    }

    /// @param choose calls members that say what changes
    template <class Choose>
    void run(Choose const& choose) {
        _access.protocol().require_nothing_written(_call);
        _access.wait_to_write(_call);
        FlatLayout next = agreed_layout(choose);
        std::vector<std::uint64_t> const before = _access.updates();
        std::vector<std::uint64_t> updates;
        bool is_same = _parameters.size() == before.size();
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            std::size_t const origin = _origins[index];
            bool const is_known = origin < before.size();
            bool const was_trainable = is_known && _access.layout().parameter(origin).trainable;
            bool const is_trainable = _parameters[index].spec.trainable;
            bool const is_fresh = !is_known || (is_trainable && !was_trainable);
            updates.push_back(is_fresh ? 0 : before[origin]);
            is_same = is_same && is_trainable == was_trainable;
        }
        _access.guard([&] {
            _rebuild.count_again(_parameters, next); // another part of the model may have changed
            if (!is_same) {
                _rebuild.replace(_parameters, std::move(next), as_span(_origins));
            }
        });
        if (!is_same) {
            _access.set_updates(as_span(updates));
        }
    }

    [[noreturn]] void refuse(std::string_view why) const {
        throw_error<InvalidArgument>(
            {"zero: ", _call, " on rank ", _access.rank(), ": ", why, "."});
    }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// Returns the layout of what was chosen. Where a model is cut over ranks, a part may refuse
    /// what the others do not: then all do.
    template <class Choose>
    FlatLayout agreed_layout(Choose const& choose) {
        std::optional<FlatLayout> next;
        std::exception_ptr refusal;
        std::string text;
        auto const keep = [&](std::exception const& error) {
            refusal = std::current_exception();
            text = error.what();
        };
        try {
            choose();
            next.emplace(layout());
        } catch (InvalidArgument const& error) {
            keep(error);
        }
        _access.guard([&] {
            try {
                if (next) {
                    _rebuild.require_agreement_on(*next, _parameters, _call);
                }
            } catch (LayoutMismatch const& error) { // on every rank, and nothing was changed
                keep(error);
            }
        });
        meet_parts(refusal, text);
        if (refusal) {
            std::rethrow_exception(refusal);
        }
        return std::move(*next);
    }

    FlatLayout layout() {
        if (_access.options().storage == Storage::adopted) {
            refuse("an adopted block is cut where its trainable parameters lie; use another "
                   "storage");
        }
        drop_removed();
        require_same_units();
        std::vector<std::size_t> const order(_access.layout().unit_order().begin(),
                                             _access.layout().unit_order().end());
        return _rebuild.layout_of(_parameters, as_span(order));
    }

    /// Sets the refusal of another part of the model, unless this one has its own. Collective over
    /// the model ranks; waits.
    void meet_parts([[maybe_unused]] std::exception_ptr& refusal,
                    [[maybe_unused]] std::string const& text) {
        if constexpr (ModelParallelCommunicator<typename Config::Communicator>) {
            constexpr std::size_t words = 64; // of a text that ends with 0
            std::vector<std::uint64_t> own(words), all;
            std::memcpy(own.data(), text.data(), smaller(text.size(), words * sizeof(own[0]) - 1));
            _access.guard([&] { _rebuild.gather_over_parts(own, _call, all); });
            for (std::size_t rank = 0; rank * words < all.size() && !refusal; ++rank) {
                if (all[rank * words] != 0) {
                    refusal = std::make_exception_ptr(InvalidArgument(zero::detail::text(
                        {"zero: ", _call, " on rank ", _access.rank(),
                         " changed nothing, because model rank ", rank, " refused it: ",
                         reinterpret_cast<char const*>(all.data() + rank * words)})));
                }
            }
        }
    }

    void drop_removed() {
        std::size_t kept = 0;
        std::size_t const before = _access.layout().parameters().size();
        for (std::size_t index = 0; index < _parameters.size(); ++index) {
            if (index >= before || _origins[index] != none) {
                std::swap(_parameters[kept], _parameters[index]);
                std::swap(_origins[kept], _origins[index]);
                ++kept;
            }
        }
        _parameters.erase(_parameters.begin() + static_cast<std::ptrdiff_t>(kept),
                          _parameters.end());
        _origins.resize(kept);
    }

    /// Handles, the recorded order of units and messages refer to units by number.
    void require_same_units() const {
        std::size_t units = 0;
        for (AnyParameter const& parameter : _parameters) {
            for (std::size_t const unit : parameter.spec.units) {
                units = larger(units, unit + 1);
            }
        }
        if (units != _access.layout().units()) {
            refuse(text({"the parameters would be in ", units, " units, and an engine keeps the ",
                         _access.layout().units(),
                         " units of its construction; for units that come or go, register a "
                         "parameter without elements in the last one"}));
        }
    }

    StateAccess<Config> _access;
    EngineRebuild<Config> _rebuild;
    char const* _call;
    std::vector<AnyParameter> _parameters;
    std::vector<std::size_t> _origins; ///< index in the present layout; `none`: new, or removed
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
/// Collective: every rank passes the same names and waits. Captured graphs of before are invalid
/// after it, and a `TrainingState` of before throws OutOfOrder; `layout()` and the memory plan are
/// new. Old and new parameters, master weights and states exist at the same time for a moment. If
/// nothing changes, nothing is moved. Gradients of a thawed parameter lie in the engine's memory.
/// @param names of parameters as they were registered; the name of a parameter in tiles means all
/// of them
/// @throws InvalidArgument for an unknown name, adopted storage, and parameters with registered
/// gradients; OutOfOrder inside a step, while a handle is held, parameters are gathered for
/// writing, or states are away; LayoutMismatch on every rank if the ranks differ. Nothing was
/// changed, and the engine remains usable. Where a model is cut over ranks, what a part refuses or
/// finds different is InvalidArgument in the others
template <class Config>
[[gnu::cold]] void set_trainable(Engine<Config>& engine, std::span<std::string const> names,
                                 bool is_trainable) {
    detail::LiveChange<Config> change(engine, "set_trainable()");
    auto const set = [&](std::size_t index) { change.set_trainable(index, is_trainable); };
    change.run([&] { change.choose(names, set); });
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
    detail::LiveChange<Config> change(engine, "set_trainable()");
    auto const is_in = [&](ParameterSpec const& spec) { return spec.group == group; };
    auto const set = [&](std::size_t index) { change.set_trainable(index, is_trainable); };
    change.run([&] {
        if (change.choose(is_in, set) == 0) {
            change.refuse(detail::text({"no parameter is in group ", group}));
        }
    });
}

/// @brief Adds parameters between two steps, such as low-rank adapters beside frozen weights.
///
///     zero::set_trainable(engine, {"proj"}, false);
///     zero::add_parameters(engine, {{.name = "proj.lora_a", .units = {3}, .shape = {8, 768}},
///                                   {.name = "proj.lora_b", .units = {3}, .shape = {768, 8}}});
///
/// They follow the others in the order of registration, start as at construction, with their
/// registered values and 0 updates, and are in units and groups that the engine has. Everything
/// else continues with the same bits, and all is as in a new engine of the longer registration into
/// which the state of the others was loaded. Memory, and what becomes invalid: as by
/// `set_trainable`. `gather` reads adapters and writes what they are merged into.
///
/// Collective: every rank passes the same parameters, or, where a model is cut over ranks, those of
/// its part, perhaps none; waits.
/// @return the registration index of the first one
/// @throws InvalidArgument as the constructor for parameters, and for other units, other groups and
/// adopted storage; OutOfOrder and LayoutMismatch as `set_trainable`. Nothing was changed, and the
/// engine remains usable. What `initialise` throws breaks the engine, and the other ranks get
/// Aborted. Replicas on model ranks are compared last (`require_same_replicas`)
template <class Config>
[[gnu::cold]] std::size_t
add_parameters(Engine<Config>& engine,
               Registrations<typename Engine<Config>::Registration> const& parameters) {
    detail::LiveChange<Config> change(engine, "add_parameters()");
    std::size_t const first = engine.layout().parameters().size();
    change.run([&] { change.add(parameters); });
    engine.require_same_replicas();
    return first;
}

/// @brief Removes parameters between two steps; their values and states are given back.
///
///     zero::remove_parameters(engine, {"proj.lora_a", "proj.lora_b"}); // merged before
///
/// The registration indices of later ones become smaller. The rest is as of `set_trainable`.
/// Collective; waits.
/// @param names as of `set_trainable`, the same on every rank
/// @throws as `set_trainable`, and InvalidArgument if the last unit would have no parameter
template <class Config>
[[gnu::cold]] void remove_parameters(Engine<Config>& engine, std::span<std::string const> names) {
    detail::LiveChange<Config> change(engine, "remove_parameters()");
    auto const remove = [&](std::size_t index) { change.remove(index); };
    change.run([&] { change.choose(names, remove); });
}

/// @brief The same for a list of names in braces.
template <class Config>
void remove_parameters(Engine<Config>& engine, std::initializer_list<std::string> names) {
    remove_parameters(engine, std::span<std::string const>(names.begin(), names.size()));
}

} // namespace ZERO_NAMESPACE
