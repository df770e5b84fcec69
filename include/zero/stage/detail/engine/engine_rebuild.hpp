#pragma once

#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../engine.hpp"
#include "../../parameter.hpp"
#include "../common/engine_context.hpp"
#include "../common/gather_on_host.hpp"
#include "../common/stores_by_type.hpp"
#include "../gradients/gradient_scheduler.hpp"
#include "../memory/offloaded_states.hpp"
#include "../optimizer/optimizer_store.hpp"
#include "../parameters/parameter_scheduler.hpp"
#include "../registration/compared_options.hpp"
#include "../registration/model_ranks.hpp"
#include "../state/add_held_states.hpp"
#include "../state/state_access.hpp"
#include "../state/state_mover.hpp"
#include "../state/state_table.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Rebuilds the layout of an engine between two steps, and everything that depends on it.
/// Implements the option `rebuild_buckets`, and live changes. Collective; waits.
template <class Config>
class EngineRebuild {
public:
    explicit EngineRebuild(Engine<Config>& engine) noexcept : _engine(&engine) {}

    /// @brief Rebuilds in rank 0's order of readiness.
    [[gnu::cold]] void run() {
        auto const& own_order = _engine->_ready_order.complete();
        auto const shared = broadcast_on_host(
            *_engine->_communicator, _engine->_queue, *_engine->_memory,
            {own_order.begin(), own_order.end()}, engine_tag(_engine->_layout, "ready order"));
        std::vector<std::size_t> const order(shared.begin(), shared.end());
        std::vector<AnyParameter> const parameters = registered();
        FlatLayout next = layout_of(parameters, as_span(order));
        require_agreement_on(next, parameters, "rebuild_buckets");
        _engine->_ready_order.stop();
        replace(parameters, std::move(next));
    }

    /// @brief Returns the registered parameters, without the initial values of owned ones.
    [[nodiscard]] std::vector<AnyParameter> registered() const {
        std::vector<AnyParameter> parameters;
        for (std::size_t index = 0; index < _engine->_layout.parameters().size(); ++index) {
            Engine<Config>::with_types(
                _engine->_layout.parameter(index).type, [&]<class Types>(Types) {
                    zero::Parameter<typename Types::Parameter, typename Types::Gradient> parameter;
                    if (_engine->_options.storage != Storage::owned) {
                        parameter.data = const_cast<typename Types::Parameter*>(
                            _engine->_parameters.template store<Types>().whole(index));
                    }
                    parameter.gradient = _engine->_gradients.template store<Types>().callers(index);
                    parameters.emplace_back(parameter).spec = _engine->_layout.parameter(index);
                });
        }
        return parameters;
    }

    /// @brief Returns the layout of these parameters under the options of the engine. Sends
    /// nothing. @throws InvalidArgument
    [[nodiscard]] FlatLayout layout_of(std::vector<AnyParameter> const& parameters,
                                       std::span<std::size_t const> unit_order) const {
        FlatLayout next = _engine->_make_layout(_engine->_number, _engine->_layout.world(),
                                                parameters, _engine->_options, unit_order);
        next.set_number(_engine->_layout.number()); // until ranks agree on another
        EngineContext<Config> context = _engine->context(parameters);
        context.layout = &next;
        for (std::size_t type = 0; type < Config::types; ++type) {
            (void)context.parameter_leases(type); // throws if a limit has no room for a unit
        }
        return next;
    }

    /// @param call the public function or option, for messages
    /// @throws LayoutMismatch on every rank
    void require_agreement_on(FlatLayout& next, std::vector<AnyParameter> const& parameters,
                              char const* call) const {
        auto& communicator = *_engine->_communicator;
        require_agreement(next, Config::parameter_dtypes,
                          compared_options(_engine->_number, _engine->_schedule,
                                           _engine->predivide(), _engine->_options, communicator,
                                           hash_of_initialisation(as_span(parameters))),
                          communicator, _engine->_queue, *_engine->_memory, "buckets made again",
                          call);
    }

    /// @brief Counts the parameters of another layout in norms, where a model is cut over ranks.
    void count_again(std::vector<AnyParameter> const& parameters, FlatLayout const& next) {
        EngineContext<Config> all = _engine->context(parameters);
        all.layout = &next;
        _engine->_counted =
            agree_over_model(_engine->_number, all, _engine->_control.group_count(), true);
    }

    /// @brief Gathers values over the ranks that hold the parts of a model. Collective; waits.
    void gather_over_parts(std::vector<std::uint64_t> const& own, char const* call,
                           std::vector<std::uint64_t>& all) const {
        gather_over(_engine->_communicator->model(), _engine->_queue, *_engine->_memory,
                    _engine->_counted.engine)(own, call, all);
    }

    /// @brief Moves parameters and states into stores of another layout. New parameters get their
    /// registered values; the states of those that were frozen or are new, their initial values.
    /// @param origins as of `StateMover`; new parameters are the last ones
    [[gnu::cold]] void replace(std::vector<AnyParameter> const& parameters, FlatLayout next,
                               std::span<std::size_t const> origins = {}) {
        auto& communicator = *_engine->_communicator;
        // First, since a disk without room for a second file must leave the engine as it is.
        auto offload = make_offload<Config>(next, communicator,
                                            stage_row(_engine->_number, _engine->_schedule),
                                            _engine->_options, *_engine->_memory);
        _engine->_parameters.wait_for_readers();
        _engine->_parameters.wait_for_leases();
        // Commands on the compute queue may use memory that is freed below.
        Backend::synchronise(Backend::record(_engine->_compute));
        wait_for_collectives(communicator, _engine->_queue);
        StateAccess<Config> const access(*_engine);
        List<HeldArray> const errors = access.gradient_errors();
        std::optional<float> const error_scale = access.error_scale();
        std::vector<std::shared_ptr<void const>> kept; // memory of the errors
        if constexpr (keeps_errors<Config>) {
            _engine->_gradients.each_errors([&](auto& store) { kept.push_back(store.take()); });
        }
        { // between two steps other gradients are not state, and their memory is needed
            GradientScheduler<Config> const freed = std::move(_engine->_gradients);
        }
        _engine->_gather_index.reset();
        // From here on the old stores provide memory only, not geometry.
        FlatLayout const old = std::exchange(_engine->_layout, std::move(next));
        EngineContext<Config> all = _engine->context(parameters);
        if constexpr (Config::Offload::is_any) {
            offload->use(_engine->_layout);
        }
        all.offload = OffloadRef<Config>(offload);
        ParameterScheduler<Config> store(all);
        std::size_t first_new = 0;
        while (first_new < origins.size() && origins[first_new] < old.parameters().size()) {
            ++first_new;
        }
        if (first_new != origins.size()) {
            store.set_initial(as_span(parameters), first_new);
        }
        move_parameters(old, store, all, origins);
        store.continue_from(_engine->_parameters);
        _engine->_parameters = std::move(store);
        _engine->_gradients = GradientScheduler<Config>(all);
        if constexpr (keeps_errors<Config>) {
            StateMover<Communicator> const mover(old, false, communicator, _engine->_queue,
                                                 *_engine->_memory);
            for (std::size_t type = 0; type < errors.size(); ++type) {
                mover.move(errors[type], access.gradient_errors()[type]);
            }
            access.set_error_scale(error_scale);
            kept.clear();
        }
        auto scratch = make_update_scratch(all);
        auto stores =
            make_optimizer_stores(all, _engine->_parameters, _engine->_gradients, scratch);
        if (is_any_fresh(old, origins)) {
            stores.each([](auto& shard) { shard.set_initial(); });
        }
        move_states(old, stores, all, origins);
        _engine->_optimizer = std::move(stores);
        if constexpr (Config::Offload::is_any) {
            _engine->_offload = std::move(offload); // ends the file of the old layout
        }
        _engine->_update_scratch = std::move(scratch);
        _engine->_waits_for_callers =
            _engine->uses_callers_memory(as_span(parameters), _engine->_options);
    }

private:
    using Communicator = typename Config::Communicator;
    using Backend = typename Config::Backend;

    /// Whether a parameter is trainable of which the old layout had no states.
    [[nodiscard]] bool is_any_fresh(FlatLayout const& old,
                                    std::span<std::size_t const> origins) const {
        bool is_any = false;
        for (std::size_t index = 0; index < _engine->_layout.parameters().size(); ++index) {
            std::size_t const origin = origins.empty() ? index : origins[index];
            bool const had_states =
                origin < old.parameters().size() && old.parameter(origin).trainable;
            is_any = is_any || (_engine->_layout.parameter(index).trainable && !had_states);
        }
        return is_any;
    }

    void move_parameters(FlatLayout const& old, ParameterScheduler<Config>& to,
                         EngineContext<Config> const& all, std::span<std::size_t const> origins) {
        StateMover<Communicator> const mover(old, all.row.shards_parameters(),
                                             *_engine->_communicator, _engine->_queue,
                                             *_engine->_memory, origins);
        for (std::size_t type = 0;
             type < Config::types && _engine->_options.storage == Storage::owned; ++type) {
            Engine<Config>::with_types(type, [&]<class Types>(Types) {
                move(mover,
                     held_parameters(_engine->_parameters.template store<Types>(), old, type),
                     held_parameters(to.template store<Types>(), _engine->_layout, type), all);
                if constexpr (has_frozen_codec<Types>) {
                    move(mover, held_codes(_engine->_parameters.template store<Types>(), old, type),
                         held_codes(to.template store<Types>(), _engine->_layout, type), all);
                }
            });
        }
    }

    using OptimizerStores = StoresByType<Config, OptimizerStore>;

    static List<HeldArray> held_by(OptimizerStores const& stores) {
        List<HeldArray> all;
        std::size_t type = 0;
        stores.each([&](auto const& store) { add_held_states(all, store, type++); });
        return all;
    }

    void move_states(FlatLayout const& old, OptimizerStores const& to,
                     EngineContext<Config> const& all, std::span<std::size_t const> origins) {
        auto const sources = held_by(_engine->_optimizer);
        auto const targets = held_by(to);
        StateMover<Communicator> const mover(old, all.row.shards_optimizer(),
                                             *_engine->_communicator, _engine->_queue,
                                             *_engine->_memory, origins);
        for (std::size_t array = 0; array < sources.size(); ++array) {
            move(mover, sources[array], targets[array], all);
        }
    }

    /// Moves an array, from the file of the old layout to that of the new one if it is offloaded.
    void move(StateMover<Communicator> const& mover, HeldArray const& from, HeldArray const& to,
              [[maybe_unused]] EngineContext<Config> const& all) {
        if constexpr (Config::Offload::is_any) {
            mover.move(from, to, [&](void* target, void const* source, std::size_t bytes) {
                void const* const data = _engine->_offload->memory_at(source, false);
                all.offload.states->copy(target, data, bytes);
            });
        } else {
            mover.move(from, to);
        }
    }

    Engine<Config>* _engine;
};

} // namespace ZERO_NAMESPACE::detail
