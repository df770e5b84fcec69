#pragma once

#include "../backend/tensor_archetype.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief What every optimizer has: options, the constants of a step, and a declared number of
/// states (all start at zero).
///
/// Beyond the syntax a model guarantees: `hyper` is pure and derives in double what is constant
/// during a step (learning rate, beta^t). `whole_tensor` says which kind it is: of one element, or
/// of a whole parameter, which a partitioner that cuts parameters cannot give.
template <class O>
concept OptimizerOptions =
    std::same_as<typename O::policy_category, OptimizerCategory>
    && std::is_trivially_copyable_v<typename O::Hyper>
    && std::same_as<decltype(O::states), std::size_t const>
    && std::same_as<decltype(O::whole_tensor), bool const>
    && requires(typename O::Options const& options, double learning_rate, std::uint64_t step) {
           { O::hyper(options, learning_rate, step) } noexcept -> std::same_as<typename O::Hyper>;
           { O::validate(options) } -> std::same_as<void>;
       };

/// @brief An optimizer that updates one element: a functor over a number type. A parameter may be
/// cut anywhere.
///
/// Beyond the syntax a model guarantees: the functor uses only the operations of `zero::ops` on its
/// numbers and has no state of its own.
template <class O>
concept ElementOptimizer =
    OptimizerOptions<O> && !O::whole_tensor
    && requires(O const& functor, float gradient, float& parameter, float (&state)[O::states],
                typename O::Hyper const& hyper) { functor(gradient, parameter, state, hyper); };

/// @brief An optimizer that updates a whole parameter, through what `TensorArchetype` offers.
///
/// Beyond the syntax a model guarantees: `update_tensor` depends on nothing but its arguments, and
/// `scratch_floats` on nothing but the shape.
template <class O>
concept TensorOptimizer = OptimizerOptions<O> && O::whole_tensor
                          && requires(TensorArchetype const& tensor, typename O::Hyper const& hyper,
                                      std::size_t rows, std::size_t columns) {
                                 { O::update_tensor(tensor, hyper) } noexcept -> std::same_as<void>;
                                 {
                                     O::scratch_floats(rows, columns)
                                 } noexcept -> std::same_as<std::size_t>;
                             };

/// @brief A policy that updates parameters.
template <class O>
concept Optimizer = ElementOptimizer<O> || TensorOptimizer<O>;

/// @brief Reports each reason why `O` is not an `Optimizer` as one error.
template <class O>
consteval bool diagnose_optimizer() {
    constexpr bool has_types = requires {
        typename O::Options;
        typename O::Hyper;
        requires std::is_trivially_copyable_v<typename O::Hyper>;
    };
    constexpr bool has_states = requires {
        requires std::same_as<decltype(O::states), std::size_t const> && O::states >= 1;
    };
    constexpr bool has_kind =
        requires { requires std::same_as<decltype(O::whole_tensor), bool const>; };
    static_assert(has_types, "zero: an Optimizer needs member types 'Options' and 'Hyper' "
                             "(trivially copyable; what is constant during a step).");
    static_assert(has_states, "zero: an Optimizer needs 'static constexpr std::size_t states' "
                              "(numbers kept per element, at least 1).");
    static_assert(has_kind, "zero: an Optimizer needs 'static constexpr bool whole_tensor' (does "
                            "it need parameters uncut?).");
    if constexpr (has_types) {
        using Options = typename O::Options;
        using Hyper = typename O::Hyper;
        static_assert(
            requires(Options const& o) {
                { O::hyper(o, 0.1, std::uint64_t{1}) } noexcept -> std::same_as<Hyper>;
            }, "zero: an Optimizer needs 'static Hyper hyper(Options const&, double learning_rate, "
               "std::uint64_t step) noexcept'.");
        static_assert(
            requires(Options const& o) {
                { O::validate(o) } -> std::same_as<void>;
            }, "zero: an Optimizer needs 'static void validate(Options const&)' (throws "
               "InvalidArgument).");
        if constexpr (has_kind) {
            if constexpr (O::whole_tensor) {
                static_assert(
                    requires(TensorArchetype const& t, Hyper const& h) {
                        { O::update_tensor(t, h) } noexcept -> std::same_as<void>;
                    }, "zero: an Optimizer with 'whole_tensor' needs 'template <class Tensor> "
                       "static void update_tensor(Tensor const&, Hyper const&) noexcept' "
                       "(zero::TensorArchetype says what a tensor offers).");
                static_assert(
                    requires(std::size_t n) {
                        { O::scratch_floats(n, n) } noexcept -> std::same_as<std::size_t>;
                    }, "zero: an Optimizer with 'whole_tensor' needs 'static std::size_t "
                       "scratch_floats(std::size_t rows, std::size_t columns) noexcept' "
                       "(floats that the update of one parameter needs beside it; rows are 0 when "
                       "it is no matrix).");
            } else if constexpr (has_states) {
                static_assert(
                    requires(O const& f, float g, float& p, float(&s)[O::states], Hyper const& h) {
                        f(g, p, s, h);
                    }, "zero: an Optimizer needs 'template <class F> void operator()(F gradient, "
                       "F& parameter, F (&state)[states], Hyper const&) const'.");
            }
        }
    }
    return Optimizer<O>;
}

} // namespace ZERO_NAMESPACE
