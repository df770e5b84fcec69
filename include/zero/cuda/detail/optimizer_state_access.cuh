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

/// Access of an update to the optimizer's states on the device: eight at a time, in packs or by
/// whole warps, as `for_packs` calls a body. The update kernels choose an access by the overloads
/// of `access`.
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
            load_operands<whole>(at.states[s] + begin, count, values[s]);
        }
    }

    template <bool whole>
    __device__ void store_states(std::size_t begin, std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            store_results<whole>(at.states[s] + begin, count, values[s]);
        }
    }
};

/// @brief Accesses states in float16 with a scale per block of 64 elements. A block consists of the
/// packs of eight consecutive threads, or of two numbers of each thread of a warp.
template <std::size_t states>
struct ScaledStateAccess {
    static constexpr bool is_all_packs = false; // scales are accessed one by one
    static constexpr bool needs_warp = true;

    ScaledStatePointers<states> const* at; ///< stays in the table: pointers in registers would
                                           ///< leave too few registers for the numbers

    __device__ bool is_aligned() const { return StateAccess<states, float16>{*at}.is_aligned(); }

    template <bool whole>
    __device__ void load_states(std::size_t begin, std::size_t count,
                                float (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            float16 stored[pack_elements];
            load<whole>(at->states[s] + begin, count, stored);
#pragma unroll
            for (std::size_t first = 0; first < pack_elements; first += in_block<whole>) {
                float const scale = first < count ? *scale_of<whole>(s, begin, first) : 1.0F;
#pragma unroll
                for (std::size_t i = first; i < first + in_block<whole>; ++i) {
                    values[s][i] = ops::mul(to_operand(stored[i]), scale);
                }
            }
        }
    }

    /// @param values ignored beyond `count`
    template <bool whole>
    __device__ void store_states(std::size_t begin, std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            float scaled[pack_elements];
#pragma unroll
            for (std::size_t first = 0; first < pack_elements; first += in_block<whole>) {
                float const scale =
                    ops::block_scale(largest_of_block<whole>(values[s], first, count));
                float const inverse = ops::inverse_block_scale(scale);
#pragma unroll
                for (std::size_t i = first; i < first + in_block<whole>; ++i) {
                    scaled[i] = ops::keep_from_zero(ops::mul(values[s][i], inverse), values[s][i]);
                }
                if (first < count && begin % ops::scaled_block_elements == 0) {
                    *scale_of<whole>(s, begin, first) = scale;
                }
            }
            store_results<whole>(at->states[s] + begin, count, scaled);
        }
    }

private:
    /// Number of one thread's consecutive values that are in the same block.
    template <bool whole>
    static constexpr std::size_t in_block =
        whole ? pack_elements : ops::scaled_block_elements / warp_threads;

    template <bool whole>
    __device__ float* scale_of(std::size_t s, std::size_t begin, std::size_t index) const {
        return global(at->scales[s] + (begin + index * stride<whole>) / ops::scaled_block_elements);
    }

    template <bool whole>
    __device__ static float largest_of_block(float const (&values)[pack_elements],
                                             std::size_t first, std::size_t count) {
        constexpr auto threads =
            static_cast<unsigned>(ops::scaled_block_elements / in_block<whole>);
        unsigned largest = 0; // bits, which are in the order of magnitudes
#pragma unroll
        for (std::size_t i = first; i < first + in_block<whole>; ++i) {
            auto const magnitude = __builtin_bit_cast(unsigned, ops::finite_magnitude(values[i]));
            largest = i < count && largest < magnitude ? magnitude : largest;
        }
#pragma unroll
        for (unsigned step = 1; step < threads; step *= 2) {
            unsigned const other = __shfl_xor_sync(whole_warp, largest, step);
            largest = largest < other ? other : largest;
        }
        return __uint_as_float(largest);
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
