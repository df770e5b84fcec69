#pragma once

#include "../../../backend/fence.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../engine.hpp"
#include "../common/engine_config.hpp"
#include "../common/engine_context.hpp"
#include "../common/gather_on_host.hpp"
#include "../memory/engine_memory.hpp"
#include "../parameters/parameter_store.hpp"
#include "add_held_states.hpp"
#include "state_table.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the parameters of one type that this rank holds. @param layout the layout for
/// which `memory` was made
template <class Config, class Types>
[[gnu::cold]] HeldArray held_parameters(ParameterStore<Config, Types> const& memory,
                                        FlatLayout const& layout, std::size_t type) {
    using T = typename Types::Parameter;
    HeldArray array{
        type, {ArrayKind::parameter, 0, dtype_of<T>(), sizeof(T)}, !has_frozen_codec<Types>};
    auto const add = [&](Piece const& piece, void* data) { array.add(piece, data); };
    std::size_t const buckets =
        has_frozen_codec<Types> ? layout.trainable_buckets() : layout.buckets();
    for_buckets(layout, {0, buckets}, type,
                [&](std::size_t bucket) { memory.for_held(layout, bucket, add); });
    // Frozen parameters of an adopted block are in no bucket.
    for (std::size_t parameter = 0; parameter < layout.parameters().size(); ++parameter) {
        auto const& spec = layout.parameter(parameter);
        if (spec.type == type && spec.elements != 0 && layout.parameter_pieces(parameter).empty()) {
            Piece const piece{parameter, 0, 0, spec.elements};
            array.add(piece, memory.slice(0, piece));
        }
    }
    return array;
}

/// @brief Returns the codes of frozen parameters of one type that this rank holds.
template <class Config, class Types>
[[gnu::cold]] HeldArray held_codes(ParameterStore<Config, Types> const& memory,
                                   FlatLayout const& layout, std::size_t type) {
    using C = typename Types::FrozenCodec;
    HeldArray array{
        type,
        {ArrayKind::frozen, 0, DType::float32, C::bytes_per_block, coded_elements, &block_codec<C>},
        true,
        {},
        false};
    auto const add = [&](Piece const& piece, void* data) { array.add(piece, data); };
    for_buckets(layout, {layout.trainable_buckets(), layout.buckets()}, type,
                [&](std::size_t bucket) { memory.for_held(layout, bucket, add); });
    return array;
}

/// @brief Lists the arrays of an engine's training state and fences direct access to them.
///
/// `TrainingState`, `GatheredParameters` and checkpoints use it. Functions that call collectives
/// say so.
template <class Config>
class StateAccess {
public:
    using EngineType = Engine<Config>;
    using Backend = typename Config::Backend;
    using Communicator = typename Config::Communicator;
    using Queue = typename Backend::Queue;

    explicit StateAccess(EngineType& engine) noexcept : _engine(&engine) {}

    [[nodiscard]] FlatLayout const& layout() const noexcept { return _engine->_layout; }
    [[nodiscard]] Communicator& communicator() const noexcept { return *_engine->_communicator; }
    [[nodiscard]] Queue queue() const noexcept { return _engine->_queue; }
    [[nodiscard]] MemoryResource& memory() const noexcept { return *_engine->_memory; }
    [[nodiscard]] std::size_t rank() const noexcept { return _engine->_rank; }
    [[nodiscard]] std::size_t shard_rank() const noexcept { return shard_rank_of(communicator()); }

    /// @brief Whether this rank, or the given one, saves its extents: of several replicas one does.
    [[nodiscard]] bool saves() const noexcept { return counts_once(communicator()); }
    [[nodiscard]] bool saves(std::size_t rank) const noexcept {
        return counts_once(communicator(), rank);
    }

    [[nodiscard]] Protocol const& protocol() const noexcept { return _engine->_protocol; }
    [[nodiscard]] StepControl<Config>& control() const noexcept { return _engine->_control; }
    [[nodiscard]] bool reduces_once() const noexcept { return _engine->_gradients.reduces_once(); }
    [[nodiscard]] StageOptions<Config> const& options() const noexcept { return _engine->_options; }

    /// @brief Returns the memory of this engine, which lists what `offload_states` can move.
    [[nodiscard]] EngineMemory& engine_memory() const noexcept { return _engine->_blocks; }

    /// @brief Returns the protocol, for the states that are away.
    [[nodiscard]] Protocol& parking() const noexcept { return _engine->_protocol; }

    /// @brief Returns the parameters of every type, then their master weights and states. Every
    /// rank gets the same arrays.
    [[gnu::cold]] [[nodiscard]] List<HeldArray> arrays() const {
        List<HeldArray> all;
        for (std::size_t type = 0; type < Config::types; ++type) {
            EngineType::with_types(type, [&]<class Types>(Types) {
                all.push_back(
                    held_parameters(_engine->_parameters.template store<Types>(), layout(), type));
            });
        }
        for (std::size_t type = 0; codes_frozen<Config> && type < Config::types; ++type) {
            EngineType::with_types(type, [&]<class Types>(Types) {
                if constexpr (has_frozen_codec<Types>) {
                    all.push_back(
                        held_codes(_engine->_parameters.template store<Types>(), layout(), type));
                }
            });
        }
        std::size_t type = 0;
        _engine->_optimizer.each([&](auto const& store) { add_held_states(all, store, type++); });
        return all;
    }

    /// @brief Tables of `GatheredParameters`, kept in the engine until the buckets are rebuilt.
    [[nodiscard]] std::shared_ptr<void const>& gather_index() const noexcept {
        return _engine->_gather_index;
    }

    /// @brief Returns the reduced gradients of every type. They exist between the last
    /// `end_micro_step` and `step`.
    [[gnu::cold]] [[nodiscard]] List<HeldArray> gradients() const {
        List<HeldArray> all;
        auto const row = _engine->context({}).row;
        for (std::size_t type = 0; type < Config::types; ++type) {
            EngineType::with_types(type, [&]<class Types>(Types) {
                using A = typename Types::Accumulation;
                auto const& store = _engine->_gradients.template store<Types>();
                HeldArray array{type, {ArrayKind::gradient, 0, dtype_of<A>(), sizeof(A)}};
                Range const buckets{0, layout().trainable_buckets()};
                for_buckets(layout(), buckets, type, [&](std::size_t bucket) {
                    Range const held = row.reduced_gradients == Placement::sharded
                                           ? layout().extent(bucket, shard_rank())
                                           : Range{0, layout().elements(bucket)};
                    layout().for_slices(bucket, held, [&](Piece const& piece) {
                        array.add(piece, store.reduced(bucket, piece.bucket_begin));
                    });
                });
                all.push_back(std::move(array));
            });
        }
        return all;
    }

    /// @brief Completes the reductions of this step and waits for them; no micro-step may follow.
    /// Collective the first time in a step.
    void finish_gradients(char const* call) const {
        _engine->_protocol.require_accumulated(call);
        guard([&] {
            _engine->_gradients.finish_step();
            wait_for_collectives(*_engine->_communicator, _engine->_queue);
        });
        _engine->_protocol.end_accumulation();
    }

    /// @brief Returns what the encoding of this rank's gradients lost: all trainable elements of
    /// every type, in ascending order; nothing without `ErrorFeedback`.
    [[gnu::cold]] [[nodiscard]] List<HeldArray> gradient_errors() const {
        List<HeldArray> all;
        if constexpr (keeps_errors<Config>) {
            _engine->_gradients.each_errors([&]<class Errors>(Errors const& errors) {
                constexpr auto dtype = Errors::item_elements == 1 ? DType::float32 : DType::bytes;
                HeldArray array{
                    all.size(),
                    {ArrayKind::gradient, 0, dtype, Errors::item_bytes, Errors::item_elements}};
                Range const buckets{0, layout().trainable_buckets()};
                for_buckets(layout(), buckets, array.type, [&](std::size_t bucket) {
                    Range const all_elements{0, layout().elements(bucket)};
                    layout().for_slices(bucket, all_elements, [&](Piece const& piece) {
                        array.add(piece, errors.at(bucket, piece.bucket_begin));
                    });
                });
                array.slices = array.by_parameter();
                all.push_back(std::move(array));
            });
        }
        return all;
    }

    /// @brief Returns the loss scale that is in these errors; nothing if they count as 0. Between
    /// two steps, when no command runs.
    [[nodiscard]] std::optional<float> error_scale() const {
        std::optional<float> scale;
        if constexpr (keeps_errors<Config>) {
            _engine->_gradients.each_errors([&]<class Errors>(Errors const& errors) {
                typename Errors::State state;
                copy(&state, errors.state(), sizeof(state));
                scale = state.is_cleared ? std::nullopt : std::optional(state.scale);
            });
        }
        return scale;
    }

    /// @brief Sets it; nothing forgets the errors.
    void set_error_scale([[maybe_unused]] std::optional<float> scale) const {
        if constexpr (keeps_errors<Config>) {
            _engine->_gradients.each_errors([&](auto& errors) {
                errors.set({scale.value_or(1.0F), 1.0F, !scale});
            });
        }
    }

    /// @brief Notes that a parameter has a gradient in this step, which was set.
    void note_gradient(std::size_t parameter) const noexcept {
        _engine->_gradients.deliveries().note(parameter);
    }

    /// @brief Returns the factor that unscales and averages the reduced gradients.
    [[nodiscard]] double gradient_factor() const {
        return _engine->_control.gradient_factor(_engine->_protocol.micro_steps(),
                                                 _engine->predivide());
    }

    /// @brief Sets the number of steps that were not skipped.
    void set_step_count(std::uint64_t count) const {
        if constexpr (delays_update<Config>) {
            _engine->_warm_up.is_over = false; // counted again
        }
        control().set_step_count(count);
    }

    /// @brief Requires that no step is open, and publishes an update that is pending. Call it on
    /// every rank. @param call the public function, for messages
    void require_idle(char const* call, StateUse use = StateUse::change) const {
        _engine->settle_pending(call);
        _engine->_protocol.require_idle(call, use);
    }

    /// @brief Waits until the host may read what this rank holds. Allowed in a broken engine.
    void wait_to_read() const { _engine->wait_for_owned_slices(); }

    /// @brief Waits until the host may write what this rank holds, and drops what was gathered in
    /// advance. Call it on every rank.
    void wait_to_write(char const* call) const {
        require_idle(call);
        _engine->_protocol.require_no_visit(call);
        _engine->_protocol.require_nothing_held(call);
        guard([&] {
            // Commands on the compute queue may have changed parameters.
            Backend::wait(_engine->_queue, Backend::record(_engine->_compute), Fence::weights_read);
            _engine->_parameters.wait_for_readers();
            _engine->_parameters.drop_prefetched();
            wait_for_collectives(*_engine->_communicator, _engine->_queue);
        });
    }

    /// @brief Waits until no command uses memory of this engine. Between two steps.
    void wait_for_all() const {
        guard([&] {
            _engine->_parameters.wait_for_readers();
            _engine->_parameters.wait_for_readers_of_leases();
            Backend::synchronise(Backend::record(_engine->_compute));
            wait_for_collectives(*_engine->_communicator, _engine->_queue);
        });
    }

    /// @brief Returns whether some states of a kind lie in the tier of `Offload`.
    [[nodiscard]] bool is_in_tier([[maybe_unused]] BufferKind kind) const noexcept {
        if constexpr (Config::Offload::is_any) {
            return _engine->_offload->has(kind);
        } else {
            return false;
        }
    }

    /// @brief Returns whether the caller registered memory for a gradient.
    [[nodiscard]] bool has_callers_gradient(std::size_t parameter) const {
        return _engine->registered_memory(parameter).gradient != nullptr;
    }

    /// @brief Rounds copied master weights to the parameters and makes them readable on every rank.
    /// In stage 0 every rank takes the weights of rank 0. Collective; waits.
    void publish_master_weights(char const* call = "publish_master_weights()") const {
        wait_to_write(call);
        _engine->compare_call(call);
        guard([&] {
            _engine->_optimizer.each([](auto& store) { store.publish_masters(); });
            if (!_engine->context({}).row.shards_optimizer() && communicator().size() != 1) {
                broadcast_weights();
            }
            _engine->publish_all([](std::size_t /*bucket*/) {});
            wait_for_collectives(*_engine->_communicator, _engine->_queue);
        });
    }

    /// @brief Returns each parameter's number of updates. Waits. Allowed in a broken engine.
    [[nodiscard]] std::vector<std::uint64_t> updates() const {
        return control().counts().updates(control().settled().step_count);
    }

    /// @brief Sets each parameter's number of updates, the same on every rank. Between steps;
    /// waits.
    void set_updates(std::span<std::uint64_t const> updates) const {
        guard([&] {
            wait_for_collectives(*_engine->_communicator, _engine->_queue);
            if (control().set_updates(updates, *_engine->_memory)) {
                _engine->_optimizer.each(
                    [&](auto& store) { store.count_by_parameter(*_engine->_memory); });
            }
        });
    }

    /// @brief Registers and ends a gather for writing, as in `Protocol`.
    void open_write(std::span<std::size_t const> parameters) const {
        _engine->_protocol.open_write(parameters);
    }
    void close_write(std::span<std::size_t const> parameters) const noexcept {
        _engine->_protocol.close_write(parameters);
    }

    /// @brief Breaks the engine and releases the other ranks, where nothing can be thrown.
    void break_down(char const* cause) const noexcept { _engine->break_down(cause); }

    /// @brief Makes the replicas equal and sets the master weights to them. Collective; waits.
    void refresh_master_weights() const { _engine->parameters_changed(); }

    /// @brief Makes parameters that every rank has written readable for later commands. Collective
    /// if they travel in codes; then it waits.
    void publish_written() const {
        publish_local();
        if constexpr (codes_weights<Config>) {
            guard([&] {
                _engine->_optimizer.each([](auto& store) { store.publish_masters(); });
                _engine->publish_all([](std::size_t /*bucket*/) {});
                wait_for_collectives(*_engine->_communicator, _engine->_queue);
            });
        }
    }

    /// @brief The same for parameters that a rank has written in all its copies, also those that
    /// travel in codes. Sends nothing.
    void publish_local() const {
        guard([&] { _engine->_parameters.publish_written(); });
    }

    /// @brief Drops the notes of weights that visitors wrote: a load has written all of them.
    void forget_writes() const {
        _engine->_optimizer.each([](auto& store) { store.forget_writes(); });
    }

    /// @brief Calls `run`, whose failure breaks the engine and releases the other ranks.
    template <class Run>
    void guard(Run&& run) const {
        _engine->require_healthy();
        try {
            run();
        } catch (...) {
            _engine->fail();
        }
    }

    /// @brief Calls `run`, which uses states and sends nothing, in a broken engine as well. A
    /// failure of the tier that holds them breaks the engine and releases the other ranks.
    template <class Run>
    void locally(Run&& run) const {
        if constexpr (Config::Offload::is_any) {
            try {
                run();
            } catch (typename OffloadedStates<Config>::Failure const&) {
                _engine->fail();
            }
        } else {
            run();
        }
    }

    /// @brief Whether the host may use the addresses of held slices itself.
    static constexpr bool is_direct =
        !Config::Offload::is_any && !requires { requires Backend::is_device; };

    /// @brief Copies bytes between the host and the memory of the state, which may be a file. The
    /// bytes of the state belong to one slice. Waits.
    void copy(void* to, void const* from, std::size_t bytes) const {
        if constexpr (Config::Offload::is_any) {
            _engine->_offload->copy(to, from, bytes);
        } else if constexpr (requires { requires Backend::is_device; }) {
            Backend::copy_bytes(_engine->_queue, to, from, bytes);
            Backend::synchronise(Backend::record(_engine->_queue));
        } else {
            std::memcpy(to, from, bytes);
        }
    }

private:
    /// Sends the trainable weights of rank 0, in every form, to all ranks of stage 0.
    void broadcast_weights() const {
        for (HeldArray const& array : arrays()) {
            if (array.form.kind == ArrayKind::state || array.form.kind == ArrayKind::state_scale) {
                continue;
            }
            for (HeldSlice const& slice : array.slices) {
                auto const& spec = layout().parameter(slice.parameter);
                if (spec.trainable && slice.elements != 0) {
                    void* data = slice.data;
                    if constexpr (Config::Offload::is_any) {
                        data = _engine->_offload->memory_at(data, true);
                    }
                    communicator().broadcast(static_cast<unsigned char*>(data),
                                             array.bytes(slice.elements), 0, queue(),
                                             engine_tag(layout(), "weights of parameter",
                                                        slice.parameter, spec.name.c_str()));
                    // each time, because the capacity of a queue is limited
                    wait_for_collectives(communicator(), queue());
                }
            }
        }
    }

    EngineType* _engine;
};

template <class Stage>
[[nodiscard]] auto access_to(Stage& stage) noexcept {
    return StateAccess<config_of_t<Stage>>(stage);
}

} // namespace ZERO_NAMESPACE::detail
