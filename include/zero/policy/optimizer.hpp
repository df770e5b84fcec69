#pragma once

#include "../backend/tensor_archetype.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// @file
/// @brief The requirements of `Optimizer`, one concept each. The concepts and their messages use
/// them.

namespace ZERO_NAMESPACE::detail {

/// @brief An optimizer that names its states: `static constexpr char const* state_names[states]`.
/// Optional.
template <class O>
concept OptimizerDeclaresStateNames = requires { O::state_names; };

/// @brief The declared names have the right type and number.
template <class O>
concept OptimizerStateNamesFit =
    !OptimizerDeclaresStateNames<O>
    || std::is_same_v<decltype(O::state_names), char const* const[O::states]>;

template <class O>
concept OptimizerHasTypes = requires {
    typename O::Options;
    typename O::Hyper;
    requires std::is_trivially_copyable_v<typename O::Hyper>;
};

template <class O>
concept OptimizerHasStates =
    std::same_as<decltype(O::states), std::size_t const> && (O::states >= 1);

template <class O>
concept OptimizerHasWholeTensor = std::same_as<decltype(O::whole_tensor), bool const>;

template <class O>
concept OptimizerHasHyper =
    requires(typename O::Options const& options, double learning_rate, std::uint64_t step) {
        { O::hyper(options, learning_rate, step) } noexcept -> std::same_as<typename O::Hyper>;
    };

template <class O>
concept OptimizerHasValidate = requires(typename O::Options const& options) {
    { O::validate(options) } -> std::same_as<void>;
};

template <class O>
concept OptimizerUpdatesElements =
    requires(O const& functor, float gradient, float& parameter, float (&state)[O::states],
             typename O::Hyper const& hyper) { functor(gradient, parameter, state, hyper); };

template <class O>
concept OptimizerUpdatesTensors =
    requires(TensorArchetype const& tensor, typename O::Hyper const& hyper) {
        { O::update_tensor(tensor, hyper) } noexcept -> std::same_as<void>;
    };

template <class O>
concept OptimizerHasScratchFloats = requires(std::size_t rows, std::size_t columns) {
    { O::scratch_floats(rows, columns) } noexcept -> std::same_as<std::size_t>;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief The common part of all optimizers: options, the constants of a step, and the number of
/// states per element. All states start at zero.
///
/// Beyond the syntax, a model guarantees that `hyper` is pure and derives in double whatever is
/// constant during a step (learning rate, beta^t). Optional: `static constexpr char const*
/// state_names[states]`; states without names are called "state0", "state1" and so on. `static
/// constexpr bool nonnegative_states[states]` lets `TrainingState` refuse negative values. `static
/// void for_each_option(options, visit)` calls `visit(name, option)`, by which checkpoints save
/// them; with `static constexpr char const* name` the ranks compare all of them as well.
/// `whole_tensor` selects the kind: the update of one element, or the update of a whole parameter.
/// The second kind needs a partitioner that does not cut parameters. It may have `static constexpr
/// bool updates_matrices = true` (`MatrixOptimizer`), and need only matrices whole
/// (`NeedsOnlyMatricesWhole`).
template <class O>
concept OptimizerBase = std::same_as<typename O::policy_category, OptimizerCategory>
                        && detail::OptimizerHasTypes<O> && detail::OptimizerHasStates<O>
                        && detail::OptimizerHasWholeTensor<O> && detail::OptimizerHasHyper<O>
                        && detail::OptimizerHasValidate<O> && detail::OptimizerStateNamesFit<O>;

/// @brief An optimizer that updates one element: a functor over a number type. A parameter may be
/// cut anywhere.
///
/// Beyond the syntax, a model guarantees that the functor uses only the operations of `zero::ops`
/// on its numbers and has no state of its own.
template <class O>
concept ElementOptimizer =
    OptimizerBase<O> && !O::whole_tensor && detail::OptimizerUpdatesElements<O>;

/// @brief An optimizer that updates a whole parameter with the operations of `TensorArchetype`.
///
/// Beyond the syntax, a model guarantees that `update_tensor` depends only on its arguments, and
/// `scratch_floats` only on the shape.
template <class O>
concept TensorOptimizer = OptimizerBase<O> && O::whole_tensor && detail::OptimizerUpdatesTensors<O>
                          && detail::OptimizerHasScratchFloats<O>;

/// @brief An optimizer of whole parameters with a rule of its own for matrices, as `Muon` is. Each
/// registration then says which parameters are matrices (`Parameter::update`).
template <class O>
concept MatrixOptimizer = TensorOptimizer<O> && requires { requires O::updates_matrices; };

/// @brief A `MatrixOptimizer` that updates all other parameters element by element: they may be cut
/// (`WholeMatrixPartitioner`). It says `static constexpr bool needs_only_matrices_whole = true`.
template <class O>
concept NeedsOnlyMatricesWhole =
    MatrixOptimizer<O> && requires { requires O::needs_only_matrices_whole; };

/// @brief A policy that updates parameters.
template <class O>
concept Optimizer = ElementOptimizer<O> || TensorOptimizer<O>;

/// @brief Reports each reason why `O` is not an `Optimizer` as one error.
template <class O>
consteval bool diagnose_optimizer() {
    static_assert(detail::OptimizerHasTypes<O>,
                  "zero: an Optimizer needs member types 'Options' and 'Hyper' "
                  "(trivially copyable; the constants of a step).");
    static_assert(detail::OptimizerHasStates<O>,
                  "zero: an Optimizer needs 'static constexpr std::size_t states' "
                  "(numbers kept per element, at least 1).");
    static_assert(detail::OptimizerHasWholeTensor<O>,
                  "zero: an Optimizer needs 'static constexpr bool whole_tensor' (does "
                  "it need whole parameters?).");
    if constexpr (detail::OptimizerHasTypes<O>) {
        static_assert(!detail::OptimizerHasStates<O> || detail::OptimizerStateNamesFit<O>,
                      "zero: the 'state_names' of an Optimizer are 'static constexpr char const* "
                      "state_names[states]', one name for each state.");
        static_assert(detail::OptimizerHasHyper<O>,
                      "zero: an Optimizer needs 'static Hyper hyper(Options const&, double "
                      "learning_rate, std::uint64_t step) noexcept'.");
        static_assert(detail::OptimizerHasValidate<O>,
                      "zero: an Optimizer needs 'static void validate(Options const&)' (throws "
                      "InvalidArgument).");
    }
    if constexpr (detail::OptimizerHasTypes<O> && detail::OptimizerHasWholeTensor<O>) {
        static_assert(!O::whole_tensor || detail::OptimizerUpdatesTensors<O>,
                      "zero: an Optimizer with 'whole_tensor' needs 'template <class Tensor> "
                      "static void update_tensor(Tensor const&, Hyper const&) noexcept' "
                      "(zero::TensorArchetype says what a tensor offers).");
        static_assert(!O::whole_tensor || detail::OptimizerHasScratchFloats<O>,
                      "zero: an Optimizer with 'whole_tensor' needs 'static std::size_t "
                      "scratch_floats(std::size_t rows, std::size_t columns) noexcept' "
                      "(floats that the update of one parameter needs in addition to it; rows "
                      "are 0 unless it is a matrix).");
        static_assert(O::whole_tensor
                          || !detail::OptimizerHasStates<O> || detail::OptimizerUpdatesElements<O>,
                      "zero: an Optimizer needs 'template <class F> void operator()(F gradient, "
                      "F& parameter, F (&state)[states], Hyper const&) const'.");
    }
    return Optimizer<O>;
}

} // namespace ZERO_NAMESPACE
