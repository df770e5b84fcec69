#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/set_by_name.hpp"
#include "grouped_communicator.hpp"
#include "groups.hpp"
#include "model_parallel.hpp"

#include <cstddef>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief A role for `Groups`: E ranks hold other experts of a layer, and each has data of its own
/// (expert parallelism, Lepikhin et al., 2020).
struct Experts {};

/// @brief The options of `Groups<C, Experts>`, equal on all ranks.
struct ExpertsOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief E, the number of ranks that hold all experts together, one copy of each; it divides
    /// the number of ranks. Ranks d E to d E + E - 1 hold copy d.
    std::size_t experts = 0;
};

/// @brief The D / E ranks that hold the same experts, and the E ranks that hold one copy of all.
///
///     using ExpertRanks = zero::Groups<zero::LoopbackCommunicator, zero::Experts>;
///     ExpertRanks ranks(everyone, {.experts = 4});
///     zero::ZeroStage<2, ExpertRanks> experts(ranks, parameters_of_these_experts);
///     zero::ZeroStage<3> dense(everyone, all_other_parameters);
///     zero::JointStep joint(dense, experts);
///
/// As a communicator it is that of the ranks with the same experts: states are sharded and
/// gradients reduced there. The trainer exchanges tokens among `model()`, so the gradient of an
/// expert on one rank is the sum over the tokens of E ranks. A mean divides by all D ranks, and
/// weights of a step are added over D, so E changes the meaning of no gradient. Norm, skip and
/// settings are those of all experts, as for `ModelParallel`; each element counts once.
///
/// An expert without a token gets zeros and stops nobody, and a rank may hold none. Names contain
/// the number of the expert in the model. `TreeReduction` is refused: experts see the micro-batches
/// of E ranks at once.
/// @tparam C as for `ModelParallel`, without model ranks of its own
template <class C>
class Groups<C, Experts> : public Groups<C, ModelParallel> {
    using Base = Groups<C, ModelParallel>;
    static_assert(!ModelParallelCommunicator<C>,
                  "zero::Groups: zero::Experts over ranks that are model ranks already; give the "
                  "data ranks of one part.");

public:
    using Options = ExpertsOptions;           ///< of a constructor
    static constexpr bool has_experts = true; ///< see `ExpertCommunicator`

    /// @brief Splits the communicator of all D ranks. Collective; blocks until all have called.
    /// @throws LayoutMismatch if ranks give different sizes; InvalidArgument; both on every rank
    Groups(C& everyone, ExpertsOptions const& options)
        : Base(everyone, options.experts, {".experts", "all experts"}) {}

    /// @brief Uses parts that the caller made. Collective; waits.
    /// @param same the ranks with the same experts, @param model the ranks that hold all experts
    /// together; both must outlive this object
    /// @throws InvalidArgument if the parts do not form a grid, on the ranks that can see it
    Groups(C& same, typename Base::Part& model) : Base(same, model) {}

    /// @brief See `Communicator`: this rank among all D.
    [[nodiscard]] int position() const noexcept {
        return this->rank() * this->model().size() + this->model().rank();
    }

    /// @brief See `Communicator`.
    [[nodiscard]] std::string_view reason_against_tree() const noexcept {
        return "an expert sees the micro-batches of several ranks at once; give "
               "zero::TreeReduction "
               "to the dense part only";
    }
};

} // namespace ZERO_NAMESPACE
