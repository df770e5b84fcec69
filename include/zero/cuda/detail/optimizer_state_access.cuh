#pragma once

#include "../../backend/state_pointers.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/block_scale.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>

/// The access of an update to the optimizer's states on the device: eight at a time, or the first
/// `count` of eight, where `count` may be 0. `begin` is a multiple of 8. The update kernels choose
/// an access by the overloads of `access`.
namespace ZERO_NAMESPACE::cuda::detail {
inline namespace ZERO_CUDA_NAMESPACE {

/// @brief Accesses states of type S.
template <std::size_t states, class S>
struct StateAccess {
    static constexpr bool is_all_packs = true;
    static constexpr bool needs_warp = false; ///< threads of a warp cooperate on neighbouring packs

    StatePointers<states, S> at;

    __device__ bool is_aligned() const {
        bool result = true;
        for (std::size_t s = 0; s < states; ++s) {
            result = result && are_aligned(at.states[s]);
        }
        return result;
    }

    template <bool whole>
    __device__ void load_states(std::size_t begin, std::size_t count,
                                float (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            load_floats<whole>(at.states[s] + begin, count, values[s]);
        }
    }

    template <bool whole>
    __device__ void store_states(std::size_t begin, std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            store_floats<whole>(at.states[s] + begin, count, values[s]);
        }
    }
};

/// @brief Accesses states in float16 with a scale per block of 64 elements, which eight consecutive
/// threads hold.
template <std::size_t states>
struct ScaledStateAccess {
    static constexpr bool is_all_packs = false; // a scale per block
    static constexpr bool needs_warp = true;
    static constexpr unsigned threads =
        static_cast<unsigned>(ops::scaled_block_elements / pack_elements); ///< of a block
    static_assert(threads == 8);

    ScaledStatePointers<states> const* at; ///< stays in the table: pointers in registers would
                                           ///< leave too few registers for the numbers

    __device__ bool is_aligned() const { return StateAccess<states, float16>{*at}.is_aligned(); }

    template <bool whole>
    __device__ void load_states(std::size_t begin, std::size_t count,
                                float (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            load_floats<whole>(at->states[s] + begin, count, values[s]);
            float const scale =
                count == 0 ? 1.0F : global(at->scales[s])[begin / ops::scaled_block_elements];
#pragma unroll
            for (float& value : values[s]) {
                value = ops::mul(value, scale);
            }
        }
    }

    /// @param values ignored beyond `count`
    template <bool whole>
    __device__ void store_states(std::size_t begin, std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            float largest = 0.0F;
#pragma unroll
            for (std::size_t i = 0; i < pack_elements; ++i) {
                float const magnitude = ops::finite_magnitude(values[s][i]);
                largest = i < count && largest < magnitude ? magnitude : largest;
            }
#pragma unroll
            for (unsigned step = 1; step < threads; step *= 2) {
                float const other = __shfl_xor_sync(0xffffffffU, largest, step);
                largest = largest < other ? other : largest;
            }
            float const scale = ops::block_scale(largest);
            float const inverse = ops::inverse_block_scale(scale);
            float scaled[pack_elements];
#pragma unroll
            for (std::size_t i = 0; i < pack_elements; ++i) {
                scaled[i] = with_canonical_nan(
                    ops::keep_from_zero(ops::mul(values[s][i], inverse), values[s][i]));
            }
            store_floats<whole>(at->states[s] + begin, count, scaled);
            if (count != 0 && begin % ops::scaled_block_elements == 0) {
                global(at->scales[s])[begin / ops::scaled_block_elements] = scale;
            }
        }
    }
};

template <std::size_t states, class S>
__device__ StateAccess<states, S> access(StatePointers<states, S> const& at) {
    return {at};
}
template <std::size_t states>
__device__ ScaledStateAccess<states> access(ScaledStatePointers<states> const& at) {
    return {&at};
}

} // namespace ZERO_CUDA_NAMESPACE
} // namespace ZERO_NAMESPACE::cuda::detail
