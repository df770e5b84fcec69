#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/detail/plan/count_blocks.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../ops/block_scale.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/set_up_backlog.hpp"
#include "../memory/offloaded_states.hpp"
#include "../memory/placed_buffer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the optimizer states (moments) of a rank's shard in the type of the policy, and
/// their block scales if the policy has them. A member of `OptimizerStore`.
///
/// The states are zero at first. `place` returns the addresses of a slice's states. Each slice is
/// placed once, in table order. `show` fills the spans of an `OwnedSlice`.
template <class Config>
class OptimizerStateStore {
public:
    static constexpr std::size_t states = Config::Optimizer::states;
    static constexpr bool is_scaled = Config::OptimizerState::is_block_scaled;
    using S = typename Config::OptimizerState::Type;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Plain =
        std::conditional_t<is_scaled, ScaledStatePointers<states, S>, StatePointers<states, S>>;
    using Pointers = std::conditional_t<Config::rounds_states, StochasticStates<Plain>, Plain>;
    static_assert(block_elements == ops::scaled_block_elements);
    static constexpr std::size_t bytes = states * sizeof(S);
    static constexpr std::size_t bytes_per_block = is_scaled ? states * sizeof(float) : 0;

    [[gnu::cold]] explicit OptimizerStateStore(TypeContext<Config> const& context)
        : _layout(context.layout), _queue(context.queue), _poison(context.options->poison),
          _backlog(context.queue), _drain(context.queue) {
        std::size_t array = 0;
        for (auto& state : _states) {
            state = updated_array<BufferKind::optimizer_state, S>(context, array++);
            Backend::fill(_queue, state.data(), state.size(), _poison ? poison() : S{});
        }
        for (auto& scale : _scales) {
            scale = updated_blocks<BufferKind::optimizer_state, float>(context, 1, array++);
            Backend::fill(_queue, scale.data(), scale.size(), 1.0F); // has no padding
        }
    }

    [[nodiscard]] Pointers place(std::size_t bucket, Piece const& piece) {
        Pointers at;
        if constexpr (Config::rounds_states) {
            at.first_index = _layout->first_element(piece.parameter) + piece.parameter_begin;
        }
        for (std::size_t state = 0; state < states; ++state) {
            at.states[state] = _states[state].at(bucket, piece.bucket_begin);
            if (!is_offloaded && _poison) { // what remains poisoned is padding
                Backend::fill(_queue, at.states[state], piece.elements, S{});
                _backlog.count();
            }
            if constexpr (is_scaled) {
                at.scales[state] = _scales[state].take(bucket, piece);
            }
        }
        return at;
    }

    /// @brief Sets the states of slices that are offloaded to their initial values.
    template <class Slices>
    [[gnu::cold]] void set_initial(Slices const& slices) {
        for (auto const& slice : slices) {
            for (std::size_t state = 0; state < states; ++state) {
                Backend::fill(_queue, slice.states[state], slice.elements, S{});
                if constexpr (is_scaled) {
                    Backend::fill(_queue, slice.scales[state], blocks_of(slice.elements), 1.0F);
                }
            }
        }
    }

    template <class Owned>
    static void show(Pointers const& at, std::size_t elements, Owned& owned) {
        for (std::size_t state = 0; state < states; ++state) {
            owned.states[state] = {at.states[state], elements};
            if constexpr (is_scaled) {
                owned.scales[state] = {at.scales[state], blocks_of(elements)};
            }
        }
    }

private:
    [[nodiscard]] static S poison() noexcept {
        if constexpr (std::is_same_v<S, power8>) {
            return S{std::numeric_limits<std::int8_t>::min()}; // NaN where codes are signed
        } else {
            return from_float<S>(std::numeric_limits<float>::quiet_NaN());
        }
    }

    static constexpr bool is_offloaded = Config::Offload::offloads(BufferKind::optimizer_state);

    FlatLayout const* _layout;
    Queue _queue;
    bool _poison;
    SetUpBacklog<Backend> _backlog;
    std::array<UpdatedArray<S, Config, BufferKind::optimizer_state>, states> _states;
    std::array<UpdatedBlocks<float, Config, BufferKind::optimizer_state>, is_scaled ? states : 0>
        _scales;
    Drain<Backend> _drain; ///< an allocation may fail when commands already use earlier buffers
};

} // namespace ZERO_NAMESPACE::detail
