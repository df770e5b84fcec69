#pragma once

#include "../../backend/state_pointers.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/block_scale.hpp"
#include "cast_loops.hpp"
#include "update_loop.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// One step of an optimizer whose states are float16 with a scale per block. Used by `run_update`.
///
/// Block by block the states are converted to floats that stay in the L1 cache, updated by
/// `UpdateLoop`, and stored with a new scale.
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
            UpdateLoop<Optimizer, A, Weights, float>{
                gradient + begin, weights.from(begin), at, count, factor, hyper}
                .template operator()<F>();
            for (std::size_t s = 0; s < states; ++s) {
                state.scales[s][begin / block] = write<F>(state.states[s] + begin, wide[s], count);
            }
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

    /// @return the scale of the block
    template <class F>
    [[gnu::always_inline]] static float write(float16* to, float const* from,
                                              std::size_t count) noexcept {
        float const scale = ops::block_scale(largest_finite<F>(from));
        if (count == block) {
            write_block<F>(to, from, scale);
        } else {
            float16 rest[block];
            write_block<F>(rest, from, scale);
            copy_elements(to, rest, count);
        }
        return scale;
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
    [[gnu::always_inline]] static void write_block(float16* to, float const* from,
                                                   float scale) noexcept {
        F const factor(ops::inverse_block_scale(scale));
        for (std::size_t i = 0; i < block; i += F::size) {
            F const value = F::load(from + i);
            F::keep_from_zero(F::mul(value, factor), value)
                .with_canonical_nan()
                .store_number(to + i);
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

} // namespace ZERO_NAMESPACE::host::detail
