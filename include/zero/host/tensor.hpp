#pragma once

#include "../backend/slices.hpp"
#include "../backend/update_decision.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../ops/arithmetic.hpp"
#include "../ops/detail/newton_schulz.hpp"
#include "../ops/exact_sum.hpp"
#include "detail/lanes_avx512.hpp"
#include "detail/master_weight_access.hpp"
#include "detail/run_loop.hpp"
#include "detail/update_loop.hpp"
#include "kernels.hpp"
#include "update.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace ZERO_NAMESPACE::host {

/// @brief One whole parameter on the host, as a whole-tensor optimizer sees it. Refers to a slice
/// of the update table; `TensorArchetype` documents the functions.
template <class A, class Weights, class Pointers>
class Tensor {
public:
    /// @brief The entry of the update table.
    using Slice = UpdateSlice<A, Weights, Pointers>;

    /// @param decision its factor multiplies every gradient; its key rounds the states
    Tensor(Slice const& slice, UpdateDecision const& decision) noexcept
        : _slice(&slice), _decision(decision) {}

    [[nodiscard]] std::size_t elements() const noexcept { return _slice->elements; }
    [[nodiscard]] std::size_t rows() const noexcept { return _slice->rows; }
    [[nodiscard]] std::size_t columns() const noexcept {
        return rows() == 0 ? elements() : elements() / rows();
    }
    [[nodiscard]] float* scratch() const noexcept { return _slice->scratch; }

    template <class Functor>
    void update(typename Functor::Hyper const& hyper) const noexcept {
        host::update<Functor>(_slice->gradient, _slice->weights(), states<Functor>(0), elements(),
                              _decision.factor, hyper);
    }

    template <class Functor>
    void update(float const* values, typename Functor::Hyper const& hyper) const noexcept {
        host::update<Functor>(values, _slice->weights(), states<Functor>(0), elements(), 1.0F,
                              hyper);
    }

    template <class Functor>
    void write(float* to, typename Functor::Hyper const& hyper) const noexcept {
        write_part<Functor>(to, 0, elements(), hyper);
    }

    template <class Functor>
    [[nodiscard]] double norm(typename Functor::Hyper const& hyper) const noexcept {
        constexpr std::size_t chunk = 2048; // stays in the L1 cache
        alignas(64) float values[chunk];
        ops::Inspection sum;
        for (std::size_t begin = 0; begin < elements(); begin += chunk) {
            std::size_t const count = zero::detail::smaller(chunk, elements() - begin);
            write_part<Functor>(values, begin, count, hyper);
            inspect(values, count, 0, sum);
        }
        return ops::l2_norm(sum);
    }

    [[nodiscard]] double norm(float const* values, std::size_t n) const noexcept {
        ops::Inspection sum;
        inspect(values, n, 0, sum);
        return ops::l2_norm(sum);
    }

    void scale(float* values, std::size_t n, float factor) const noexcept {
        convert(values, values, n, factor);
    }

    /// @brief Transposes a rows x columns matrix.
    void transpose(float* out, float const* in, std::size_t rows,
                   std::size_t columns) const noexcept {
        zero::detail::transpose(out, in, rows, columns);
    }

    void multiply(zero::detail::MatrixProduct const& product) const noexcept {
        detail::run_widest(product);
    }

private:
    /// Pointers to the first states, as many as the functor has, from element `begin` on.
    template <class Functor>
    [[nodiscard]] auto states(std::size_t begin) const noexcept {
        static_assert(Functor::states <= std::tuple_size_v<decltype(Pointers::states)>,
                      "zero: a functor of a whole-tensor optimizer uses more states than the "
                      "optimizer has.");
        using First = StatePointers<Functor::states, typename Pointers::Type>;
        auto const from = decided(_slice->all_states(), _decision);
        First first;
        for (std::size_t state = 0; state != Functor::states; ++state) {
            first.states[state] = from.states[state] + begin;
        }
        if constexpr (requires { from.key; }) {
            return StochasticStates<First>{first, from.first_index + begin, from.key};
        } else {
            return first;
        }
    }

    /// @param begin a multiple of 64
    template <class Functor>
    void write_part(float* to, std::size_t begin, std::size_t n,
                    typename Functor::Hyper const& hyper) const noexcept {
        auto const from = readable(_slice->weights(), begin);
        using Access = detail::RedirectedAccess<std::remove_const_t<decltype(from)>>;
        detail::run_update<Functor>(_slice->gradient + begin, Access{from, to},
                                    states<Functor>(begin), n, _decision.factor, hyper);
    }

    template <class M, class P>
    static detail::MasterAccess<M, P, detail::ParameterWrite::none>
    readable(MasterPointers<M, P> const& weights, std::size_t begin) noexcept {
        return {{weights.master + begin, nullptr}};
    }

    static detail::SplitAccess readable(SplitPointers const& weights, std::size_t begin) noexcept {
        return {
            {weights.parameter + begin, weights.remainder + begin, weights.rounded_up + begin / 8}};
    }

    Slice const* _slice;
    UpdateDecision _decision;
};

} // namespace ZERO_NAMESPACE::host
