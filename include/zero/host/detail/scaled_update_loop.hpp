#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/block_scale.hpp"
#include "cast_loops.hpp"
#include "run.hpp"
#include "update_loop.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// One step of an optimizer whose states are float16 with a scale per block. Used by `run_update`.
///
/// Block by block the states are converted to floats that stay in the L1 cache, updated by
/// `UpdateLoop`, and stored with a new scale.
/// @tparam Pointers `ScaledStatePointers`, or `StochasticStates` of them
template <class Optimizer, StorageType A, class Weights, class Pointers>
struct ScaledUpdateLoop {
    static constexpr std::size_t states = Optimizer::states;
    static constexpr std::size_t block = ops::scaled_block_elements;

    A const* gradient;
    Weights weights;
    Pointers state;
    std::size_t n;
    float factor;
    typename Optimizer::Hyper hyper;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        StateRounding<Pointers> const rounding(state);
        for (std::size_t begin = 0; begin < n; begin += block) {
            std::size_t const count = n - begin < block ? n - begin : block;
            alignas(32) float wide[states][block];
            StatePointers<states, float> at;
            for (std::size_t s = 0; s < states; ++s) {
                read<F>(wide[s], state.states[s] + begin, count, state.scales[s][begin / block]);
                at.states[s] = wide[s];
            }
            UpdateLoop<Optimizer, A, Weights, StatePointers<states, float>>{
                gradient + begin, weights.from(begin), at, count, factor, hyper}
                .template operator()<F>();
            write<F>(wide, begin, count, rounding);
        }
    }

private:
    template <class F>
    [[gnu::always_inline]] static void read(float* to, float16 const* from, std::size_t count,
                                            float scale) noexcept {
        if (count == block) {
            read_block<F>(to, from, scale);
        } else {
            float16 rest[block];
            copy_elements(rest, from, count);
            read_block<F>(to, rest, scale);
        }
    }

    template <class F>
    [[gnu::always_inline]] void write(float const (&wide)[states][block], std::size_t begin,
                                      std::size_t count,
                                      StateRounding<Pointers> const& rounding) const noexcept {
        float16 rest[states][block];
        std::array<float16*, states> to;
        float inverse[states];
        for (std::size_t s = 0; s < states; ++s) {
            float const scale = ops::block_scale(largest_finite<F>(wide[s]));
            state.scales[s][begin / block] = scale;
            inverse[s] = ops::inverse_block_scale(scale);
            to[s] = count == block ? state.states[s] + begin : rest[s];
        }
        for (std::size_t i = 0; i < block; i += F::size) {
            F scaled[states];
            std::array<float16*, states> at;
            for (std::size_t s = 0; s < states; ++s) {
                F const value = F::load(wide[s] + i);
                scaled[s] = F::keep_from_zero(F::mul(value, F(inverse[s])), value);
                at[s] = to[s] + i;
            }
            rounding.store(scaled, at, begin + i);
        }
        for (std::size_t s = 0; count != block && s < states; ++s) {
            copy_elements(state.states[s] + begin, rest[s], count);
        }
    }

    template <class F>
    [[gnu::always_inline]] static void read_block(float* to, float16 const* from,
                                                  float scale) noexcept {
        F const factor(scale);
        for (std::size_t i = 0; i < block; i += F::size) {
            F::mul(F::load(from + i), factor).store(to + i);
        }
    }

    template <class F>
    [[gnu::always_inline]] static float largest_finite(float const* from) noexcept {
        F largest(0.0F);
        for (std::size_t i = 0; i < block; i += F::size) {
            largest = F::larger_magnitude(largest, F::load(from + i));
        }
        float lanes[F::size];
        largest.store(lanes);
        float result = 0.0F;
        for (float const lane : lanes) {
            result = result < lane ? lane : result;
        }
        return result;
    }
};

/// @brief Whether the states have a scale per block: `ScaledStatePointers`.
template <class States>
inline constexpr bool has_scales = requires(States const& states) { states.scales; };

/// @brief Runs the update loop for the kind of states. Used by `host::update`.
template <class Optimizer, StorageType A, class Weights, class States>
void run_update(A const* gradient, Weights const& weights, States const& states, std::size_t n,
                float factor, typename Optimizer::Hyper const& hyper) noexcept {
    if constexpr (has_scales<States>) {
        run(ScaledUpdateLoop<Optimizer, A, Weights, States>{gradient, weights, states, n, factor,
                                                            hyper});
    } else {
        run(UpdateLoop<Optimizer, A, Weights, States>{gradient, weights, states, n, factor, hyper});
    }
}

} // namespace ZERO_NAMESPACE::host::detail
