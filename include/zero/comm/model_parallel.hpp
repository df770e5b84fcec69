#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/set_by_name.hpp"
#include "communicator.hpp"
#include "detail/decorator.hpp"
#include "detail/optional_operations.hpp"
#include "grouped_communicator.hpp"
#include "groups.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief What the options of a split are called in messages.
struct ModelSplit {
    char const* option;
    char const* copy; ///< what M ranks hold together
};

/// @throws LayoutMismatch, InvalidArgument: on every rank. @param asked M of all ranks
[[gnu::cold]] inline void require_model_ranks(std::span<std::uint64_t const> asked,
                                              ModelSplit const& split) {
    require_same_number(asked, 1, split.option);
    if (std::uint64_t const model = asked[0]; model == 0 || asked.size() % model != 0) {
        throw_error<InvalidArgument>({"zero: Groups: ", split.option, " is ", model,
                                      ", and there are ", asked.size(),
                                      " ranks; give the number of ranks that hold one copy of ",
                                      split.copy, ", a divisor of ", asked.size(), "."});
    }
}

/// @brief The words of given parts that ranks exchange: size and rank of the other part.
inline constexpr std::size_t words_of_model_parts = 2;

/// @brief Requires that all ranks of a part are the same part of the others. @param given the
/// words of its ranks, @param what of which part, for the message
/// @throws InvalidArgument on every rank of the part
[[gnu::cold]] inline void check_model_parts(std::span<std::uint64_t const> given,
                                            char const* what) {
    for (std::size_t rank = 1; rank * words_of_model_parts < given.size(); ++rank) {
        std::uint64_t const* const own = given.data() + rank * words_of_model_parts;
        if (own[0] != given[0] || own[1] != given[1]) {
            throw_error<InvalidArgument>(
                {"zero: Groups: the parts do not form a grid: of the ", what, ", rank 0 is number ",
                 given[1], " of ", given[0], " in its other part, and rank ", rank, " is number ",
                 own[1], " of ", own[0],
                 "; split all ranks once by the part of the model and once by its copy, with the "
                 "rank as the key."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A role for `Groups`: the model itself is cut over M ranks (tensor, pipeline), which share
/// their data. Each of them has an engine for the parameters that it holds.
struct ModelParallel {};

/// @brief The options of `Groups<C, ModelParallel>`, equal on all ranks.
struct ModelParallelOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief M, the number of ranks that hold one copy of the model; it divides the number of
    /// ranks. Ranks d M to d M + M - 1 are the parts 0 to M - 1 of copy d.
    std::size_t model = 0;
};

/// @brief The data ranks of one part of a model that is cut over M ranks, and these M ranks.
///
///     using Ranks = zero::Groups<zero::LoopbackCommunicator, zero::ModelParallel>;
///     Ranks ranks(everyone, {.model = 4});
///     zero::ZeroStage<2, Ranks> engine(ranks, parameters_of_this_part);
///
/// As a communicator it is that of the data ranks, whose size an engine divides a mean by.
/// `model()` are the ranks that hold the other parts of the same copy. Over both an engine adds
/// norms, in integers, so that a norm, a clip coefficient and a skipped step are the same bits
/// however the model is cut; and it compares settings, learning rates and weights. Everything else
/// stays among the data ranks: layouts and checkpoints, one folder for each part.
///
/// A failure reaches the ranks of both; call `run_rank(ranks, body)` or an engine to report one.
/// @tparam C a `SplittableCommunicator`, or one whose parts are given; `Groups<C, Hybrid>` to shard
/// each part in a few data ranks only
template <class C>
class Groups<C, ModelParallel>
    : public detail::RoleDecorator<Groups<C, ModelParallel>, C, ModelParallelCommunicator<C>> {
    using Base = detail::RoleDecorator<Groups, C, ModelParallelCommunicator<C>>;
    friend Base;

public:
    using Part = typename Base::Part; ///< the type of the model ranks
    using Queue = typename Base::Queue;
    using Options = ModelParallelOptions; ///< of a constructor

    /// @brief Splits the communicator of all ranks. Collective; blocks until all ranks have called.
    /// @throws LayoutMismatch if ranks give different sizes; InvalidArgument; both on every rank
    Groups(C& everyone, ModelParallelOptions const& options)
        : Groups(everyone, options.model, {".model", "the model"}) {}

    /// @brief Uses parts that the caller made. Collective; waits.
    /// @param data the ranks with this part of the model, @param model the ranks that hold the
    /// other parts of this copy; both must outlive this object
    /// @throws InvalidArgument if the parts do not form a grid, on the ranks that can see it
    Groups(C& data, Part& model) : Base(data), _model(&model) {
        auto const words = [](auto& other) { // NOLINT(readability-qualified-auto)
            return std::pair{static_cast<std::uint64_t>(other.size()),
                             static_cast<std::uint64_t>(other.rank())};
        };
        try {
            check(data, words(model), "data ranks");
            check(model, words(data), "model ranks");
        } catch (InvalidArgument const& error) {
            this->abort(error.what());
            throw;
        }
    }

    /// @brief Returns the M ranks that hold the parts of this copy of the model.
    [[nodiscard]] Part& model() const noexcept { return *_model; }

protected:
    /// @brief Splits the ranks for a role that derives from this one.
    Groups(C& everyone, std::size_t model, detail::ModelSplit const& names)
        : Groups(split(everyone, model, names)) {}

private:
    struct Parts {
        C data;
        C model;
    };

    explicit Groups(std::unique_ptr<Parts> parts)
        : Base(parts->data), _split(std::move(parts)), _model(&_split->model) {}

    static std::unique_ptr<Parts> split(C& everyone, std::uint64_t own,
                                        detail::ModelSplit const& names) {
        static_assert(SplittableCommunicator<C>,
                      "zero::Groups: this communicator has no 'split'; give the parts: "
                      "Groups(data, model).");
        auto const asked = detail::gather_groups(everyone, "options of zero::Groups",
                                                 std::span(&own, std::size_t{1}));
        detail::require_model_ranks(detail::as_span(asked), names);
        int const model = static_cast<int>(own);
        return std::unique_ptr<Parts>(
            new Parts{everyone.split(everyone.rank() % model, everyone.rank()),
                      everyone.split(everyone.rank() / model, everyone.rank())});
    }

    template <class P>
    static void check(P& part, std::pair<std::uint64_t, std::uint64_t> other, char const* what) {
        std::uint64_t const own[detail::words_of_model_parts] = {other.first, other.second};
        detail::check_model_parts(
            detail::as_span(detail::gather_groups(part, "a part of zero::Groups", own)), what);
    }

    template <class Call>
    void for_parts(Call const& call) const {
        this->for_inner_and(*_model, call);
    }

    std::unique_ptr<Parts> _split; ///< null if the parts were given
    Part* _model;
};

} // namespace ZERO_NAMESPACE
