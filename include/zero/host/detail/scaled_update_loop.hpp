#pragma once

#include "../../core/float16.hpp"
#include "../../ops/block_scale.hpp"
#include "update_loop.hpp"

#include <array>
#include <cstddef>
#include <limits>

namespace zero::host::detail {

/// One step of an optimizer whose states are float16 with a scale per block: block by block the states become floats that stay in the nearest
/// cache, are updated by the loop for floats, and are stored with a new scale.
template <class Optimizer, StorageType A, class Weights>
struct ScaledUpdateLoop {
    static constexpr std::size_t states = Optimizer::states;
    static constexpr std::size_t block = ops::scaled_block_elements;

    A const* gradient;
    Weights weights;
    ScaledStatePointers<states> state;
    std::size_t n;
    float factor;
    typename Optimizer::Hyper hyper;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        for (std::size_t begin = 0; begin < n; begin += block) {
            std::size_t const count = n - begin < block ? n - begin : block;
            alignas(32) float wide[states][block];
            std::array<float*, states> at;
            for (std::size_t s = 0; s < states; ++s) {
                read<F>(wide[s], state.states[s] + begin, count, state.scales[s][begin / block]);
                at[s] = wide[s];
            }
            UpdateLoop<Optimizer, A, Weights, float>{gradient + begin, weights.from(begin), at, count, factor, hyper}.template operator()<F>();
            for (std::size_t s = 0; s < states; ++s) {
                state.scales[s][begin / block] = write<F>(state.states[s] + begin, wide[s], count);
            }
        }
    }

private:
    template <class F>
    [[gnu::always_inline]] static void read(float* to, float16 const* from, std::size_t count, float scale) noexcept {
        float16 rest[block] = {};
        if (count < block) {
            copy_elements(rest, from, count);
            from = rest;
        }
        F const factor(scale);
        for (std::size_t i = 0; i < block; i += F::size) {
            F::mul(F::load(from + i), factor).store(to + i);
        }
    }

    /// @return the scale
    template <class F>
    [[gnu::always_inline]] static float write(float16* to, float const* from, std::size_t count) noexcept {
        float const scale = ops::block_scale(largest_finite<F>(from));
        F const factor(ops::inverse_block_scale(scale));
        F const zero(0.0F);
        F const least(ops::least_scaled);
        F const minus_least(-ops::least_scaled);
        float16 rest[block];
        float16* const out = count < block ? rest : to;
        for (std::size_t i = 0; i < block; i += F::size) {
            F const value = F::load(from + i);
            F scaled = F::mul(value, factor);
            scaled = F::select(F::less(zero, value), F::select(F::less(scaled, least), least, scaled), scaled);
            scaled = F::select(F::less(value, zero), F::select(F::less(minus_least, scaled), minus_least, scaled), scaled);
            scaled.with_canonical_nan().store_number(out + i);
        }
        if (count < block) {
            copy_elements(to, rest, count);
        }
        return scale;
    }

    template <class F>
    [[gnu::always_inline]] static float largest_finite(float const* from) noexcept {
        F const zero(0.0F);
        F const limit(std::numeric_limits<float>::max());
        F largest(0.0F);
        for (std::size_t i = 0; i < block; i += F::size) {
            F const value = F::load(from + i);
            F const magnitude = F::select(F::less(value, zero), F::sub(zero, value), value);
            F const finite = F::select(F::less_equal(magnitude, limit), magnitude, zero);
            largest = F::select(F::less(largest, finite), finite, largest);
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

} // namespace zero::host::detail
