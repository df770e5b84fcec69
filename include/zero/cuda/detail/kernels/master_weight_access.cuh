#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/split_float.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../ops/counter_random.hpp"
#include "../../../ops/stochastic_round.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Access of an update to weights on the device: eight at a time, in packs or by whole warps, as
/// `for_packs` calls a body. The update kernels choose an access by the overloads of `access`.
namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Accesses master weights, and writes the parameters rounded from them.
template <class M, class P>
struct MasterAccess {
    static constexpr bool is_all_packs = true; ///< every access to a whole pack moves 16 bytes

    MasterPointers<M, P> at;

    __device__ bool is_aligned() const {
        return are_aligned(at.master) && are_aligned(at.parameter);
    }

    template <bool whole>
    __device__ void load_weights(std::size_t begin, std::size_t count,
                                 float (&weights)[pack_elements]) const {
        load_operands<whole>(at.master + begin, count, weights);
    }

    template <bool whole>
    __device__ void store_weights(std::size_t begin, std::size_t count,
                                  float const (&weights)[pack_elements]) const {
        store_results<whole>(at.master + begin, count, weights);
        if constexpr (!std::is_same_v<M, P>) {
            store_results<whole>(at.parameter + begin, count, weights);
        } else if (at.parameter != nullptr) {
            store_results<whole>(at.parameter + begin, count, weights);
        }
    }
};

/// @brief Accesses weights that are split into a bfloat16 and the remainder of a float.
struct SplitAccess {
    static constexpr bool is_all_packs = false; // the bits of eight elements are one byte

    SplitPointers at;

    __device__ bool is_aligned() const { return are_aligned(at.parameter, at.remainder); }

    template <bool whole>
    __device__ void load_weights(std::size_t begin, std::size_t count,
                                 float (&weights)[pack_elements]) const {
        bfloat16 halves[pack_elements];
        std::uint16_t remainders[pack_elements];
        load<whole>(at.parameter + begin, count, halves);
        load<whole>(at.remainder + begin, count, remainders);
        std::uint8_t const* const bits = at.rounded_up + begin / 8;
        unsigned const rounded_up = whole ? *global(bits) : 0;
#pragma unroll
        for (unsigned i = 0; i < pack_elements; ++i) {
            unsigned const bit = whole       ? rounded_up >> i
                                 : i < count ? *global(bits + 4 * i) >> begin % 8
                                             : 0U; // bits of 32 elements: four bytes
            weights[i] = join({halves[i], remainders[i], (bit & 1U) != 0});
        }
    }

    template <bool whole>
    __device__ void store_weights(std::size_t begin, std::size_t count,
                                  float const (&weights)[pack_elements]) const {
        bfloat16 halves[pack_elements];
        std::uint16_t remainders[pack_elements];
        unsigned rounded_up = 0;
#pragma unroll
        for (unsigned i = 0; i < pack_elements; ++i) {
            // As `split`, which has an exception for NaNs other than this one.
            auto const bits = __builtin_bit_cast(std::uint32_t, with_canonical_nan(weights[i]));
            halves[i] = round_result<bfloat16>(weights[i]);
            remainders[i] = static_cast<std::uint16_t>(bits & 0xffffU);
            rounded_up |= (halves[i].bits != bits >> 16U ? 1U : 0U) << i;
        }
        store<whole>(at.parameter + begin, count, halves);
        store<whole>(at.remainder + begin, count, remainders);
        std::uint8_t* const bits = at.rounded_up + begin / 8;
        if constexpr (whole) {
            *global(bits) = static_cast<std::uint8_t>(rounded_up);
        } else {
            store_bits(bits, count, rounded_up);
        }
    }

private:
    /// Writes the bits of elements that each thread holds 32 apart. The i-th elements of a warp are
    /// consecutive, so their bits are four bytes. Bits of the last byte beyond the slice stay
    /// unchanged.
    __device__ static void store_bits(std::uint8_t* bits, std::size_t count, unsigned rounded_up) {
        unsigned const lane = threadIdx.x % warp_threads;
#pragma unroll
        for (unsigned i = 0; i < pack_elements; ++i) {
            unsigned const all = __ballot_sync(whole_warp, rounded_up >> i & 1U) >> lane;
            unsigned const own = __ballot_sync(whole_warp, i < count) >> lane & 0xffU;
            if (lane % 8 == 0 && own != 0) {
                std::uint8_t* const byte = global(bits + 4 * i);
                *byte = static_cast<std::uint8_t>((*byte & ~own) | (all & own));
            }
        }
    }
};

/// @brief Accesses parameters that have no master weights, and rounds them stochastically.
template <class P>
struct StochasticAccess {
    static constexpr bool is_all_packs = true;

    StochasticPointers<P> at;

    __device__ bool is_aligned() const { return are_aligned(at.parameter); }

    template <bool whole>
    __device__ void load_weights(std::size_t begin, std::size_t count,
                                 float (&weights)[pack_elements]) const {
        load_operands<whole>(at.parameter + begin, count, weights);
    }

    template <bool whole>
    __device__ void store_weights(std::size_t begin, std::size_t count,
                                  float const (&weights)[pack_elements]) const {
        P rounded[pack_elements];
#pragma unroll
        for (std::size_t i = 0; i < pack_elements; ++i) {
            rounded[i] = ops::round_stochastically<P>(
                with_canonical_nan(weights[i]),
                ops::random_bits(at.key, at.first_index + begin + i * stride<whole>));
        }
        store<whole>(at.parameter + begin, count, rounded);
    }
};

template <class M, class P>
__device__ MasterAccess<M, P> access(MasterPointers<M, P> const& at) {
    return {at};
}
inline __device__ SplitAccess access(SplitPointers const& at) {
    return {at};
}
template <class P>
__device__ StochasticAccess<P> access(StochasticPointers<P> const& at) {
    return {at};
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
