#pragma once

#include "../../backend/slices.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "../../ops/block_scale.hpp"
#include "../../ops/counter_random.hpp"
#include "../../ops/power_codes.hpp"
#include "cast_loops.hpp"
#include "run_loop.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

/// Rounds the states of an update and writes them: to nearest.
template <class States>
struct StateRounding {
    explicit StateRounding(States const&) noexcept {}

    /// @param values one pack per state
    template <class F, std::size_t n, StateStorageType S, std::size_t states>
    [[gnu::always_inline]] void store(F const (&values)[n], std::array<S*, states> const& to,
                                      std::size_t /*begin*/) const noexcept {
        for (std::size_t s = 0; s != states; ++s) {
            values[s].with_canonical_nan().store_number(to[s]);
        }
    }
};

/// Rounds stochastically.
template <class Pointers>
struct StateRounding<StochasticStates<Pointers>> {
    static constexpr std::size_t states = std::tuple_size_v<decltype(Pointers::states)>;

    explicit StateRounding(StochasticStates<Pointers> const& at) noexcept
        : first_index(at.first_index) {
        for (std::size_t pair = 0; pair < keys.size(); ++pair) {
            keys[pair] = ops::state_random_key(at.key, pair);
        }
    }

    /// @param begin offset of the packs from the first element
    template <class F, std::size_t n, StateStorageType S>
    [[gnu::always_inline]] void store(F const (&values)[n], std::array<S*, states> const& to,
                                      std::size_t begin) const noexcept {
        if constexpr (states != 0) { // nvcc warns of a comparison with 0
            for (std::size_t s = 0; s < states; s += 2) {
                typename F::RandomBits random(keys[s / 2], first_index + begin);
                values[s].with_canonical_nan().store_stochastic(to[s], random);
                if (s + 1 < states) {
                    random.swap_halves();
                    values[s + 1].with_canonical_nan().store_stochastic(to[s + 1], random);
                }
            }
        }
    }

    std::uint64_t first_index;
    std::array<std::uint64_t, (states + 1) / 2> keys;
};

/// One step of an optimizer over a range. Used by `run_update`.
/// @tparam Weights how the weights are read and written, see master_weight_access.hpp
/// @tparam Pointers `StatePointers`, or `StochasticStates` of them
template <class Optimizer, StorageType A, class Weights, class Pointers>
struct UpdateLoop {
    static constexpr std::size_t states = Optimizer::states;
    static constexpr bool streams = Weights::streams;
    using S = typename Pointers::Type;
    using States = std::array<S*, states>;
    using Hyper = typename Optimizer::Hyper;

    A const* gradient;
    Weights weights;
    Pointers state;
    std::size_t n;
    float factor;
    Hyper hyper;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        auto const constants =
            hyper; // a local copy: the stores below cannot change it, so it stays in registers
        States const to_state = state.states;
        StateRounding<Pointers> const rounding(state);
        auto const to_weights = weights;
        A const* const from = gradient;
        F const scale(factor);
        std::size_t const whole = n - n % F::size;
        for (std::size_t i = 0; i < whole; i += F::size) {
            States at;
            for (std::size_t s = 0; s != states; ++s) {
                at[s] = to_state[s] + i;
            }
            if constexpr (streams) { // for data in a cache, prefetching only costs time
                F::prefetch(from + i);
                to_weights.template prefetch<F>(i);
                for (std::size_t s = 0; s != states; ++s) {
                    F::prefetch(at[s]);
                }
            }
            one<streams, F>(from + i, to_weights, i, at, i, rounding, scale, constants);
        }
        if constexpr (streams) {
            F::finish_streams();
        }
        if (whole < n) {
            std::size_t const count = n - whole;
            A gradient_rest[F::size] = {};
            typename Weights::template Rest<F::size> weights_rest(to_weights, whole, count);
            S state_rest[states + 1][F::size] = {}; // an optimizer may have no state
            States at;
            copy_elements(gradient_rest, from + whole, count);
            for (std::size_t s = 0; s != states; ++s) {
                copy_elements(state_rest[s], to_state[s] + whole, count);
                at[s] = state_rest[s];
            }
            one<false, F>(gradient_rest, weights_rest.access(), 0, at, whole, rounding, scale,
                          constants);
            weights_rest.write_to(to_weights, whole, count);
            for (std::size_t s = 0; s != states; ++s) {
                copy_elements(to_state[s] + whole, state_rest[s], count);
            }
        }
    }

private:
    template <bool past_caches, class F>
    [[gnu::always_inline]] static void
    one(A const* gradient, Weights const& weights, std::size_t begin, States const& state,
        std::size_t index, StateRounding<Pointers> const& rounding, F const& scale,
        Hyper const& hyper) noexcept {
        F value = weights.template load<F>(begin);
        F values[states == 0 ? 1 : states];
        for (std::size_t s = 0; s != states; ++s) {
            values[s] = F::load(state[s]);
        }
        F const unscaled = F::mul(F::load(gradient), scale);
        F::call(Optimizer{}, unscaled, value, values, hyper);
        weights.template store<past_caches>(begin, value.with_canonical_nan());
        rounding.store(values, state, index);
    }
};

/// One step of an optimizer whose states have a scale per block. Used by `run_update`.
///
/// Block by block the states are converted to floats that stay in the L1 cache, updated by
/// `UpdateLoop`, and stored with a new scale.
/// @tparam Pointers `ScaledStatePointers`, or `StochasticStates` of them
template <class Optimizer, StorageType A, class Weights, class Pointers>
struct ScaledUpdateLoop {
    static constexpr std::size_t states = Optimizer::states;
    static constexpr std::size_t block = ops::scaled_block_elements;
    using S = typename Pointers::Type;
    static constexpr bool is_power = std::is_same_v<S, power8>;

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
            for (std::size_t s = 0; s != states; ++s) {
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
    [[gnu::always_inline]] static void read(float* to, S const* from, std::size_t count,
                                            float scale) noexcept {
        if (count == block) {
            read_block<F>(to, from, scale);
        } else {
            S rest[block];
            copy_elements(rest, from, count);
            read_block<F>(to, rest, scale);
            for (std::size_t i = count; i < block; ++i) {
                to[i] = 0.0F; // counts neither as the largest nor as negative
            }
        }
    }

    template <class F>
    [[gnu::always_inline]] void write(float const (&wide)[states][block], std::size_t begin,
                                      std::size_t count,
                                      StateRounding<Pointers> const& rounding) const noexcept {
        S rest[states][block];
        std::array<S*, states> to;
        float inverse[states];
        bool is_signed[states];
        for (std::size_t s = 0; s != states; ++s) {
            is_signed[s] = is_power && has_negative<F>(wide[s]);
            float const scale = ops::state_scale<S>(largest_finite<F>(wide[s]), is_signed[s]);
            state.scales[s][begin / block] = scale;
            inverse[s] = ops::inverse_state_scale<S>(scale);
            to[s] = count == block ? state.states[s] + begin : rest[s];
        }
        for (std::size_t i = 0; i < block; i += F::size) {
            F scaled[states];
            std::array<S*, states> at;
            for (std::size_t s = 0; s != states; ++s) {
                F const value = F::load(wide[s] + i);
                if constexpr (is_power) {
                    F::call(
                        [&](F& place) {
                            place = ops::power_place(value, inverse[s], is_signed[s]);
                        },
                        scaled[s]);
                } else {
                    scaled[s] = F::keep_from_zero(F::mul(value, F(inverse[s])), value);
                }
                at[s] = to[s] + i;
            }
            rounding.store(scaled, at, begin + i);
        }
        for (std::size_t s = 0; count != block && s < states; ++s) {
            copy_elements(state.states[s] + begin, rest[s], count);
        }
    }

    template <class F>
    [[gnu::always_inline]] static void read_block(float* to, S const* from, float scale) noexcept {
        for (std::size_t i = 0; i < block; i += F::size) {
            if constexpr (is_power) {
                F value = F::load_codes(reinterpret_cast<std::uint8_t const*>(from + i));
                F::call([&](F& code) { code = ops::power_value(code, scale); }, value);
                value.store(to + i);
            } else {
                F::mul(F::load(from + i), F(scale)).store(to + i);
            }
        }
    }

    template <class F>
    [[gnu::always_inline]] static bool has_negative(float const* from) noexcept {
        F least(0.0F);
        for (std::size_t i = 0; i < block; i += F::size) {
            F const value = F::load(from + i);
            least = F::select(F::less(value, least), value, least);
        }
        float lanes[F::size];
        least.store(lanes);
        bool result = false;
        for (float const lane : lanes) {
            result = result || lane < 0.0F;
        }
        return result;
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
