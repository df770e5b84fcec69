#pragma once

#include "cast_loops.hpp"

#include <array>
#include <cstddef>

namespace zero::host::detail {

/// How an update writes the parameter beside its master weight.
enum class ParameterStore { none, cached, streamed };

/// One step of an optimizer over a range.
template <class Optimizer, StorageType A, StorageType M, StorageType P, ParameterStore parameter_store>
struct UpdateLoop {
    static constexpr std::size_t states = Optimizer::states;
    static constexpr bool writes_parameter = parameter_store != ParameterStore::none;
    static constexpr bool streams = parameter_store == ParameterStore::streamed;

    A const* gradient;
    M* master;
    P* parameter;
    std::array<float*, states> state;
    std::size_t n;
    float factor;
    typename Optimizer::Hyper hyper;

    template <class F>
    [[gnu::always_inline]] void operator()() const noexcept {
        auto const constants = hyper; // a local copy: the stores below cannot change it, so it stays in registers
        auto const to_state = state;
        A const* const from = gradient;
        M* const to_master = master;
        P* const to_parameter = parameter;
        F const scale(factor);
        std::size_t const whole = n - n % F::size;
        for (std::size_t i = 0; i < whole; i += F::size) {
            std::array<float*, states> at;
            for (std::size_t s = 0; s < states; ++s) {
                at[s] = to_state[s] + i;
            }
            one<streams, F>(from + i, to_master + i, writes_parameter ? to_parameter + i : nullptr, at, scale, constants);
        }
        if constexpr (streams) {
            F::finish_streams();
        }
        if (whole < n) {
            std::size_t const count = n - whole;
            A gradient_rest[F::size] = {};
            M master_rest[F::size] = {};
            P parameter_rest[F::size];
            float state_rest[states + 1][F::size] = {}; // an optimizer may have no state
            std::array<float*, states> at;
            copy_elements(gradient_rest, from + whole, count);
            copy_elements(master_rest, to_master + whole, count);
            for (std::size_t s = 0; s < states; ++s) {
                copy_elements(state_rest[s], to_state[s] + whole, count);
                at[s] = state_rest[s];
            }
            one<false, F>(gradient_rest, master_rest, parameter_rest, at, scale, constants);
            copy_elements(to_master + whole, master_rest, count);
            if constexpr (writes_parameter) {
                copy_elements(to_parameter + whole, parameter_rest, count);
            }
            for (std::size_t s = 0; s < states; ++s) {
                copy_elements(to_state[s] + whole, state_rest[s], count);
            }
        }
    }

private:
    template <bool past_caches, class F>
    [[gnu::always_inline]] static void one(A const* gradient, M* master, [[maybe_unused]] P* parameter,
                                           std::array<float*, states> const& state, F const& scale,
                                           typename Optimizer::Hyper const& hyper) noexcept {
        F value = F::load(master);
        F values[states == 0 ? 1 : states];
        for (std::size_t s = 0; s < states; ++s) {
            values[s] = F::load(state[s]);
        }
        F const unscaled = F::mul(F::load(gradient), scale);
        F::call(Optimizer{}, unscaled, value, values, hyper);
        value = value.with_canonical_nan();
        value.store_number(master);
        if constexpr (writes_parameter) {
            put<past_caches>(value, parameter);
        }
        for (std::size_t s = 0; s < states; ++s) {
            values[s].with_canonical_nan().store_number(state[s]);
        }
    }
};

} // namespace zero::host::detail
