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

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @throws LayoutMismatch, InvalidArgument: on every rank. @param asked M of all ranks
void require_model_ranks(std::span<std::uint64_t const> asked);

/// @brief The words of given parts that ranks exchange: size and rank of the other part.
inline constexpr std::size_t words_of_model_parts = 2;

/// @brief Requires that all ranks of a part are the same part of the others. @param given the
/// words of its ranks, @param what of which part, for the message
/// @throws InvalidArgument on every rank of the part
void check_model_parts(std::span<std::uint64_t const> given, char const* what);

/// @brief The roles of data ranks that are grouped themselves.
template <class C>
struct DataRoles {
    using Part = C;
};

template <GroupedCommunicator C>
struct DataRoles<C> {
    using Part = typename C::Part;
    static constexpr bool sends_float_between = C::sends_float_between;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

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
    : public detail::CommunicatorDecorator<Groups<C, ModelParallel>, C, typename C::Backend, true>,
      public detail::DataRoles<C> {
    using Base = detail::CommunicatorDecorator<Groups, C, typename C::Backend, true>;
    friend Base;

public:
    using Part = typename detail::DataRoles<C>::Part; ///< the type of the model ranks
    using Queue = typename Base::Queue;
    using Options = ModelParallelOptions; ///< of a constructor

    /// @brief Splits the communicator of all ranks. Collective; blocks until all ranks have called.
    /// @throws LayoutMismatch if ranks give different sizes; InvalidArgument; both on every rank
    Groups(C& everyone, ModelParallelOptions const& options) : Groups(split(everyone, options)) {}

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
            abort(error.what());
            throw;
        }
    }

    Groups(Groups&&) = delete;
    Groups& operator=(Groups&&) = delete;

    /// @brief Returns the M ranks that hold the parts of this copy of the model.
    [[nodiscard]] Part& model() const noexcept { return *_model; }

    /// @brief See `GroupedCommunicator`, of data ranks that are grouped themselves.
    [[nodiscard]] Part& shard() const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().shard();
    }

    /// @copydoc shard
    [[nodiscard]] Part& replicas() const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().replicas();
    }

    /// @copydoc shard
    [[nodiscard]] std::size_t replica() const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().replica();
    }

    /// @copydoc shard
    [[nodiscard]] std::size_t replica_of(std::size_t rank) const noexcept
        requires GroupedCommunicator<C>
    {
        return this->inner().replica_of(rank);
    }

    /// @brief See `Communicator`. Includes the scratch memory of the model ranks.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        std::size_t bytes = 0;
        for_parts(
            [&](auto& part) { bytes += detail::scratch_bytes_of(part, largest_bucket_bytes); });
        return bytes;
    }

    /// @brief Releases the ranks that wait in either part.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        for_parts([&](auto& part) { part.abort(cause, is_provisional); });
    }

    /// @brief See `Communicator`.
    void rethrow_failure()
        requires requires(C& part) { part.rethrow_failure(); }
    {
        for_parts([](auto& part) { part.rethrow_failure(); });
    }

    /// @brief See `Communicator`.
    void synchronise()
        requires requires(C& part) { part.synchronise(); }
    {
        for_parts([](auto& part) { part.synchronise(); });
    }

    /// @brief See `Communicator`.
    void forget_events() noexcept
        requires requires(C& part) { part.forget_events(); }
    {
        for_parts([](auto& part) { part.forget_events(); });
    }

    /// @brief Marks the beginning and the end of a body of `run_rank`, which calls them.
    void begin_run() noexcept
        requires requires(C& part) { part.begin_run(); }
    {
        for_parts([](auto& part) { part.begin_run(); });
    }

    /// @copydoc begin_run
    void end_run() noexcept
        requires requires(C& part) { part.end_run(); }
    {
        for_parts([](auto& part) { part.end_run(); });
    }

    /// @brief Returns the timeline of `Timed` data ranks.
    [[nodiscard]] auto* timeline() const noexcept
        requires requires(C const& part) { part.timeline(); }
    {
        return this->inner().timeline();
    }

private:
    struct Parts {
        C data;
        C model;
    };

    explicit Groups(std::unique_ptr<Parts> parts)
        : Base(parts->data), _split(std::move(parts)), _model(&_split->model) {}

    static std::unique_ptr<Parts> split(C& everyone, ModelParallelOptions const& options) {
        static_assert(SplittableCommunicator<C>,
                      "zero::Groups: this communicator has no 'split'; give the parts: "
                      "Groups(data, model).");
        std::uint64_t const own = options.model;
        auto const asked = detail::gather_groups(everyone, "options of zero::Groups",
                                                 std::span(&own, std::size_t{1}));
        detail::require_model_ranks(detail::as_span(asked));
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

    /// Calls once for a communicator that plays both roles.
    template <class Call>
    void for_parts(Call const& call) const {
        call(this->inner());
        if (static_cast<void const*>(_model) != &this->inner()) {
            call(*_model);
        }
    }

    template <class T, class Forward>
    void around(detail::DecoratedCall const& /*call*/, Queue /*queue*/, Forward const& forward) {
        forward();
    }

    std::unique_ptr<Parts> _split; ///< null if the parts were given
    Part* _model;
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/model_parallel.ipp"
#endif
