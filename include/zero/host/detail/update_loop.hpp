#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../../ops/arithmetic.hpp"
#include "cast_loops.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE::host::detail {

/// One step of an optimizer over a range. Used by `run_update`.
/// @tparam Weights how the weights are read and written, see master_weight_access.hpp
template <class Optimizer, StorageType A, class Weights, StorageType S>
struct UpdateLoop {
    static constexpr std::size_t states = Optimizer::states;
    static constexpr bool streams = Weights::streams;
    using States = std::array<S*, states>;
    using Hyper = typename Optimizer::Hyper;

    A const* gradient;
    Weights weights;
    States state;
    std::size_t n;
    float factor;
    Hyper hyper;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        auto const constants =
            hyper; // a local copy: the stores below cannot change it, so it stays in registers
        auto const to_state = state;
        auto const to_weights = weights;
        A const* const from = gradient;
        F const scale(factor);
        std::size_t const whole = n - n % F::size;
        for (std::size_t i = 0; i < whole; i += F::size) {
            States at;
            for (std::size_t s = 0; s < states; ++s) {
                at[s] = to_state[s] + i;
            }
            if constexpr (streams) { // for data in a cache, prefetching only costs time
                F::prefetch(from + i);
                to_weights.template prefetch<F>(i);
                for (std::size_t s = 0; s < states; ++s) {
                    F::prefetch(at[s]);
                }
            }
            one<streams, F>(from + i, to_weights, i, at, scale, constants);
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
            for (std::size_t s = 0; s < states; ++s) {
                copy_elements(state_rest[s], to_state[s] + whole, count);
                at[s] = state_rest[s];
            }
            one<false, F>(gradient_rest, weights_rest.access(), 0, at, scale, constants);
            weights_rest.write_to(to_weights, whole, count);
            for (std::size_t s = 0; s < states; ++s) {
                copy_elements(to_state[s] + whole, state_rest[s], count);
            }
        }
    }

private:
    template <bool past_caches, class F>
    [[gnu::always_inline]] static void one(A const* gradient, Weights const& weights,
                                           std::size_t begin, States const& state, F const& scale,
                                           Hyper const& hyper) noexcept {
        F value = weights.template load<F>(begin);
        F values[states == 0 ? 1 : states];
        for (std::size_t s = 0; s < states; ++s) {
            values[s] = F::load(state[s]);
        }
        F const unscaled = F::mul(F::load(gradient), scale);
        F::call(Optimizer{}, unscaled, value, values, hyper);
        weights.template store<past_caches>(begin, value.with_canonical_nan());
        for (std::size_t s = 0; s < states; ++s) {
            values[s].with_canonical_nan().store_number(state[s]);
        }
    }
};

} // namespace ZERO_NAMESPACE::host::detail
