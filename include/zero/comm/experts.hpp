#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/set_by_name.hpp"
#include "detail/optional_operations.hpp"
#include "grouped_communicator.hpp"
#include "groups.hpp"
#include "model_parallel.hpp"

#include <cstddef>
#include <cstdint>
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
    /// @brief M, if the model is cut as well: the `model` of `ModelParallelOptions`. Each of E data
    /// ranks is then M ranks, which hold the parts of its experts, and E M divides the number of
    /// ranks: ranks (d E + e) M to (d E + e) M + M - 1 are number e of copy d.
    std::size_t model = 1;
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
/// If the model is cut over M ranks, which share their data, `{.experts = 4, .model = M}` divides
/// the ranks of all parts. `model()` are then E M ranks. A mean divides by the D data ranks and
/// weights are added over them, M ranks counting as one; the parts of an expert have one name, and
/// `counts_on` says what is a replica.
///
/// An expert without a token gets zeros and stops nobody, and a rank may hold none. Names contain
/// the number of the expert in the model. `TreeReduction` is refused: experts see the micro-batches
/// of E ranks at once.
/// @tparam C as for `ModelParallel`, without model ranks of its own
template <class C>
class Groups<C, Experts> : public Groups<C, ModelParallel> {
    using Base = Groups<C, ModelParallel>;

public:
    using Options = ExpertsOptions;           ///< of a constructor
    static constexpr bool has_experts = true; ///< see `ExpertCommunicator`

    /// @brief Splits the communicator of all ranks. Collective; blocks until all have called.
    /// @throws LayoutMismatch if ranks give different sizes; InvalidArgument; both on every rank
    Groups(C& everyone, ExpertsOptions const& options)
        : Base(everyone, options.experts * options.model,
               {options.model == 1 ? ".experts" : ".experts times .model", "all experts"}),
          _ranks_of_expert(options.model) {}

    /// @brief Uses parts that the caller made. Collective; waits.
    /// @param same the ranks with the same experts, @param model the ranks that hold all experts
    /// together; both must outlive this object
    /// @param ranks_of_expert M, if the model is cut: consecutive ranks of `model` that share data
    /// @throws InvalidArgument if the parts do not form a grid, on the ranks that can see it, or if
    /// M does not divide the size of `model`
    Groups(C& same, typename Base::Part& model, std::size_t ranks_of_expert = 1)
        : Base(same, model), _ranks_of_expert(ranks_of_expert) {
        if (auto const size = static_cast<std::size_t>(model.size());
            ranks_of_expert == 0 || size % ranks_of_expert != 0) {
            auto const error = detail::text(
                {"zero: Groups: ", ranks_of_expert, " ranks cannot hold an expert together where ",
                 size,
                 " ranks hold all experts; give the number of ranks over which the model is "
                 "cut, or leave it out."});
            this->abort(error);
            detail::throw_error<InvalidArgument>({error});
        }
    }

    /// @brief See `Communicator`: the number of this rank's data among those of all D.
    [[nodiscard]] int position() const noexcept {
        int const cut = static_cast<int>(_ranks_of_expert);
        return (this->rank() * this->model().size() + this->model().rank()) / cut;
    }

    /// @brief Returns M, the number of ranks that hold an expert together and share their data.
    [[nodiscard]] std::size_t ranks_of_expert() const noexcept { return _ranks_of_expert; }

    /// @brief See `Communicator`. Includes M.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        Base const& base = *this;
        return Hash().add(_ranks_of_expert).add(detail::options_hash_of(base)).value();
    }

    /// @brief See `Communicator`.
    [[nodiscard]] std::string_view reason_against_tree() const noexcept {
        return "an expert sees the micro-batches of several ranks at once; give "
               "zero::TreeReduction "
               "to the dense part only";
    }

private:
    std::size_t _ranks_of_expert;
};

} // namespace ZERO_NAMESPACE
