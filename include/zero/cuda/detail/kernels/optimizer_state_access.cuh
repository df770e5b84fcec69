#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/storage_types.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/block_scale.hpp"
#include "../../../ops/counter_random.hpp"
#include "../../../ops/power_codes.hpp"
#include "../../../ops/stochastic_round.hpp"
#include "config.cuh"
#include "launch.cuh"
#include "pack.cuh"

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Access of an update to the optimizer's states on the device: eight at a time, in packs or by
/// whole warps, as `for_packs` calls a body. The update kernels choose an access by the overloads
/// of `access`.
namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Returns an element of a std::array, whose own functions are host functions.
template <class Array>
__device__ inline auto& element(Array& array, std::size_t index) {
    using Element = std::remove_reference_t<decltype(array[index])>;
    return reinterpret_cast<Element*>(&array)[index];
}

/// @brief Rounds states to nearest and writes them.
struct NearestStates {
    template <bool whole, std::size_t states, class S>
    __device__ void store_states(StatePointers<states, S> const& at, std::size_t begin,
                                 std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            store_results<whole>(element(at.states, s) + begin, count, values[s]);
        }
    }
};

/// @brief Rounds a state, or the place of a power8 code, stochastically.
template <class S>
inline __device__ S rounded_state(float value, std::uint32_t random) {
    if constexpr (std::is_same_v<S, power8>) {
        return ops::round_place(value, random);
    } else {
        return ops::round_stochastically<S>(with_canonical_nan(value), random);
    }
}

/// @brief Rounds states stochastically and writes them. Two states share the random bits of an
/// element.
template <std::size_t states>
struct StochasticallyRoundedStates {
    std::uint64_t first_index;
    std::uint64_t keys[(states + 1) / 2];

    /// @param key of the step
    __device__ StochasticallyRoundedStates(std::uint64_t first, std::uint64_t key)
        : first_index(first) {
#pragma unroll
        for (std::size_t pair = 0; pair < (states + 1) / 2; ++pair) {
            keys[pair] = ops::state_random_key(key, pair);
        }
    }

    template <bool whole, class S>
    __device__ void store_states(StatePointers<states, S> const& at, std::size_t begin,
                                 std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; s += 2) {
            S rounded[2][pack_elements];
#pragma unroll
            for (std::size_t i = 0; i < pack_elements; ++i) {
                std::uint32_t const random =
                    ops::random_bits(keys[s / 2], first_index + begin + i * stride<whole>);
                rounded[0][i] = rounded_state<S>(values[s][i], random);
                if (s + 1 < states) {
                    rounded[1][i] = rounded_state<S>(values[s + 1][i], ops::swapped_halves(random));
                }
            }
            store<whole>(element(at.states, s) + begin, count, rounded[0]);
            if (s + 1 < states) {
                store<whole>(element(at.states, s + 1) + begin, count, rounded[1]);
            }
        }
    }
};

/// @brief Accesses states of type S.
/// @tparam Rounding `NearestStates` or `StochasticallyRoundedStates`
template <std::size_t states, class S, class Rounding = NearestStates>
struct StateAccess {
    static constexpr bool is_all_packs = true;
    static constexpr bool needs_warp = false; ///< threads of a warp cooperate on neighbouring packs

    StatePointers<states, S> at;
    [[no_unique_address]] Rounding rounding;

    __device__ bool is_aligned() const {
        bool result = true;
        for (std::size_t s = 0; s < states; ++s) {
            result = result && are_aligned(element(at.states, s));
        }
        return result;
    }

    template <bool whole>
    __device__ void load_states(std::size_t begin, std::size_t count,
                                float (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            load_operands<whole>(element(at.states, s) + begin, count, values[s]);
        }
    }

    template <bool whole>
    __device__ void store_states(std::size_t begin, std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
        rounding.template store_states<whole>(at, begin, count, values);
    }
};

/// @brief Accesses states in float16 or power8 with a scale per block of 64 elements. A block
/// consists of the packs of eight consecutive threads, or of two numbers of each thread of a warp.
/// @tparam Rounding `NearestStates` or `StochasticallyRoundedStates`
template <std::size_t states, class S, class Rounding>
struct ScaledStateAccess {
    static constexpr bool is_all_packs = false; // scales are accessed one by one
    static constexpr bool needs_warp = true;

    ScaledStatePointers<states, S> const* at; ///< stays in the table: pointers in registers would
                                              ///< leave too few registers for the numbers
    [[no_unique_address]] Rounding rounding;

    __device__ bool is_aligned() const { return StateAccess<states, S>{*at, {}}.is_aligned(); }

    template <bool whole>
    __device__ void load_states(std::size_t begin, std::size_t count,
                                float (&values)[states][pack_elements]) const {
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
            S stored[pack_elements];
            load<whole>(element(at->states, s) + begin, count, stored);
#pragma unroll
            for (std::size_t first = 0; first < pack_elements; first += in_block<whole>) {
                float const scale = first < count ? *scale_of<whole>(s, begin, first) : 1.0F;
#pragma unroll
                for (std::size_t i = first; i < first + in_block<whole>; ++i) {
                    if constexpr (std::is_same_v<S, power8>) {
                        values[s][i] = ops::state_value(stored[i], scale);
                    } else {
                        values[s][i] = ops::mul(to_operand(stored[i]), scale);
                    }
                }
            }
        }
    }

    /// @param values ignored beyond `count`
    template <bool whole>
    __device__ void store_states(std::size_t begin, std::size_t count,
                                 float const (&values)[states][pack_elements]) const {
        float scaled[states][pack_elements];
#pragma unroll
        for (std::size_t s = 0; s < states; ++s) {
#pragma unroll
            for (std::size_t first = 0; first < pack_elements; first += in_block<whole>) {
                bool const is_signed =
                    std::is_same_v<S, power8> && has_negative<whole>(values[s], first, count);
                float const scale = ops::state_scale<S>(
                    largest_of_block<whole>(values[s], first, count), is_signed);
                float const inverse = ops::inverse_state_scale<S>(scale);
#pragma unroll
                for (std::size_t i = first; i < first + in_block<whole>; ++i) {
                    if constexpr (std::is_same_v<S, power8>) {
                        scaled[s][i] = ops::power_place(values[s][i], inverse, is_signed);
                    } else {
                        scaled[s][i] =
                            ops::keep_from_zero(ops::mul(values[s][i], inverse), values[s][i]);
                    }
                }
                if (first < count && begin % ops::scaled_block_elements == 0) {
                    *scale_of<whole>(s, begin, first) = scale;
                }
            }
        }
        rounding.template store_states<whole>(*at, begin, count, scaled);
    }

private:
    /// Number of one thread's consecutive values that are in the same block.
    template <bool whole>
    static constexpr std::size_t in_block =
        whole ? pack_elements : ops::scaled_block_elements / warp_threads;

    template <bool whole>
    __device__ float* scale_of(std::size_t s, std::size_t begin, std::size_t index) const {
        return global(element(at->scales, s)
                      + (begin + index * stride<whole>) / ops::scaled_block_elements);
    }

    template <bool whole>
    __device__ static bool has_negative(float const (&values)[pack_elements], std::size_t first,
                                        std::size_t count) {
        constexpr auto threads =
            static_cast<unsigned>(ops::scaled_block_elements / in_block<whole>);
        unsigned result = 0;
#pragma unroll
        for (std::size_t i = first; i < first + in_block<whole>; ++i) {
            result |= i < count && values[i] < 0.0F ? 1U : 0U;
        }
#pragma unroll
        for (unsigned step = 1; step < threads; step *= 2) {
            result |= __shfl_xor_sync(whole_warp, result, step);
        }
        return result != 0;
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

/// @param key of the step, for stochastic rounding
template <std::size_t states, class S>
__device__ StateAccess<states, S> access(StatePointers<states, S> const& at,
                                         std::uint64_t /*key*/) {
    return {at, {}};
}
template <std::size_t states, class S>
__device__ ScaledStateAccess<states, S, NearestStates>
access(ScaledStatePointers<states, S> const& at, std::uint64_t /*key*/) {
    return {&at, {}};
}
template <std::size_t states, class S>
__device__ StateAccess<states, S, StochasticallyRoundedStates<states>>
access(StochasticStates<StatePointers<states, S>> const& at, std::uint64_t key) {
    return {at, {at.first_index, key}};
}
template <std::size_t states, class S>
__device__ ScaledStateAccess<states, S, StochasticallyRoundedStates<states>>
access(StochasticStates<ScaledStatePointers<states, S>> const& at, std::uint64_t key) {
    return {&at, {at.first_index, key}};
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
