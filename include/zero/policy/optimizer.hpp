#pragma once

#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zero {

/// @brief A policy that updates one element: a functor over a number type with a declared number of states (all start at zero).
///
/// Beyond the syntax a model guarantees: the functor uses only the operations of `zero::ops` on its numbers and has no state of its own;
/// `hyper` is pure and derives in double what is constant during a step (learning rate, beta^t). `whole_tensor` says that it needs a
/// parameter as a whole, which a partitioner that cuts parameters can not give.
template <class O>
concept Optimizer = std::same_as<typename O::policy_category, OptimizerCategory> && std::is_trivially_copyable_v<typename O::Hyper>
                 && std::same_as<decltype(O::states), std::size_t const> && std::same_as<decltype(O::whole_tensor), bool const>
                 && requires(typename O::Options const& options, double learning_rate, std::uint64_t step) {
                        { O::hyper(options, learning_rate, step) } noexcept -> std::same_as<typename O::Hyper>;
                        { O::validate(options) } -> std::same_as<void>;
                    }
                 && requires(O const& functor, float gradient, float& parameter, float (&state)[O::states], typename O::Hyper const& hyper) {
                        functor(gradient, parameter, state, hyper);
                    };

/// @brief Reports each reason why `O` is not an `Optimizer` as one error.
template <class O>
consteval bool diagnose_optimizer() {
    constexpr bool has_types = requires {
        typename O::Options;
        typename O::Hyper;
        requires std::is_trivially_copyable_v<typename O::Hyper>;
    };
    constexpr bool has_states = requires { requires std::same_as<decltype(O::states), std::size_t const> && O::states >= 1; };
    static_assert(has_types, "zero: an Optimizer needs member types 'Options' and 'Hyper' (trivially copyable; what is constant during a step).");
    static_assert(has_states, "zero: an Optimizer needs 'static constexpr std::size_t states' (numbers kept per element, at least 1).");
    static_assert(requires { requires std::same_as<decltype(O::whole_tensor), bool const>; },
                  "zero: an Optimizer needs 'static constexpr bool whole_tensor' (does it need parameters uncut?).");
    if constexpr (has_types) {
        using Options = typename O::Options;
        using Hyper = typename O::Hyper;
        static_assert(requires(Options const& o) { { O::hyper(o, 0.1, std::uint64_t{1}) } noexcept -> std::same_as<Hyper>; },
                      "zero: an Optimizer needs 'static Hyper hyper(Options const&, double learning_rate, std::uint64_t step) noexcept'.");
        static_assert(requires(Options const& o) { { O::validate(o) } -> std::same_as<void>; },
                      "zero: an Optimizer needs 'static void validate(Options const&)' (throws InvalidArgument).");
        if constexpr (has_states) {
            static_assert(requires(O const& f, float g, float& p, float (&s)[O::states], Hyper const& h) { f(g, p, s, h); },
                          "zero: an Optimizer needs 'template <class F> void operator()(F gradient, F& parameter, F (&state)[states], Hyper const&) const'.");
        }
    }
    return Optimizer<O>;
}

} // namespace zero
