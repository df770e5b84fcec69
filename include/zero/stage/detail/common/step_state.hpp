#pragma once

#include "../../../backend/update_decision.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/host_device.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../step_report.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The order in which a rank acquired and gathered units in a step, as a hash. The ranks
/// reduce it together with the integers that they reduce in every step anyway, so that a rank with
/// another order is found even over transports that compare no tags.
struct OrderEvidence {
    bool is_compared = false; ///< parameters are sharded, on more than one rank
    bool is_changed = false;  ///< this rank recorded an order in this step, or gathered other
                              ///< buckets than in the step before
    std::uint64_t hash = 0;   ///< hash of the acquisitions and gathers of the step
};

/// @brief The numbers of one rank's `OrderEvidence`, then their minima over the ranks, in the
/// memory of the backend.
struct OrderAgreement {
    static constexpr std::size_t count = 3;

    /// Hash, complement of the hash, and 1 if the rank's order or gathers changed, otherwise 0.
    std::int64_t numbers[count] = {};

    /// @brief Sets the numbers of one rank.
    ZERO_HOST_DEVICE constexpr void set(OrderEvidence const& order) noexcept {
        numbers[0] = static_cast<std::int64_t>(order.hash);
        numbers[1] = static_cast<std::int64_t>(~order.hash);
        numbers[2] = order.is_changed ? 1 : 0;
    }

    /// @brief Returns whether all ranks acquired and gathered units in the same order: the smallest
    /// hash equals the largest.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr bool is_same() const noexcept {
        return numbers[0] == ~numbers[1];
    }

    /// @brief Returns whether the order or the gathers of every rank changed in the step.
    [[nodiscard]] constexpr bool is_changed_everywhere() const noexcept { return numbers[2] == 1; }
};

/// @brief The integers that the ranks reduce to decide on a step, in the order in which they are
/// sent: the sums of the inspection; the index of its first non-finite element, which carries the
/// `GradientEvidence`; and, if parameters are sharded, the order of acquisitions.
struct StepIntegers {
    ops::Inspection inspection{};
    OrderAgreement agreement{};

    static constexpr std::size_t sums = ops::Inspection::count;

    /// @brief Returns the number of minima, which follow the sums.
    [[nodiscard]] static ZERO_HOST_DEVICE constexpr std::size_t
    minima(bool compares_order) noexcept {
        return 1 + (compares_order ? OrderAgreement::count : 0);
    }
};
static_assert(std::is_standard_layout_v<StepIntegers>
                  && offsetof(StepIntegers, agreement)
                         == (ops::Inspection::count + 1) * sizeof(std::int64_t),
              "zero: the integers of a step are one array.");

/// @brief What `StepControl::inspect` enqueued, for `decide`.
struct StepInspection {
    std::int64_t const* unused; ///< reduced minima of the parameters; null: none is left
    bool is_inspected;          ///< norm and overflow are reduced
    bool compares_order;
    bool is_weighted; ///< the weights are added
};

/// @brief The reports of the last steps. `ReportStore` owns them; only `DecideStep` writes them.
struct StepReports {
    static constexpr std::size_t kept = 16;

    std::uint64_t last_serial = 0; ///< number of the last report
    StepFigures figures[kept]{};   // those of std::array are host functions

    [[nodiscard]] ZERO_HOST_DEVICE constexpr StepFigures& of(std::uint64_t serial) noexcept {
        return figures[serial % kept];
    }
};

/// @brief The state of `StageOptions::skip_above_norm`, in backend memory. `StepControl` owns it,
/// and only with that option; only `DecideStep` and commands of `StepControl` write it.
struct NormGuard {
    double limit = __builtin_inf();
    double factor = __builtin_inf();
    std::uint64_t window = 1;
    RunningNorm running{};

    /// @brief Returns the largest norm of the next step; infinite if there is none.
    [[nodiscard]] ZERO_HOST_DEVICE double largest() const noexcept {
        bool const is_known = running.steps >= window && running.mean > 0.0;
        double const relative = is_known ? ops::mul(factor, running.mean) : __builtin_inf();
        return relative < limit ? relative : limit;
    }

    /// @brief Adds the finite norm of a step that is not skipped.
    ZERO_HOST_DEVICE void add(double norm) noexcept {
        running.steps += running.steps < window ? 1 : 0;
        double const distance = ops::sub(norm, running.mean);
        running.mean = ops::add(running.mean, distance / static_cast<double>(running.steps));
    }
};

/// @brief The part of a step's state that model ranks do not reduce: indices of elements and orders
/// mean something among the data ranks only.
template <bool IsCut>
struct ModelState {};

template <>
struct ModelState<true> {
    ops::Inspection left_out{};                           ///< of replicas that another rank counts
    std::int64_t minima[StepIntegers::minima(true)] = {}; ///< of the data ranks
    bool has_stopped = false;     ///< data ranks of another part disagree on the order of units
    bool has_silent_part = false; ///< a part has no gradient
};

/// @brief The types that the scalars of a step depend on. Engines that differ in others share one
/// `StepState` and its commands, each of which is a kernel on a device.
template <class Scaler, class UpdatedBy, class Masters, bool RoundsStates, bool IsCut,
          bool HasExperts>
struct StepTypes {
    using LossScaler = Scaler;
    using Optimizer = UpdatedBy;
    using MasterWeights = Masters;
    static constexpr bool rounds_states = RoundsStates;
    static constexpr bool is_cut = IsCut;           ///< the model is cut over model ranks
    static constexpr bool has_experts = HasExperts; ///< the model ranks hold experts
};

template <class Config>
using StepOf = StepTypes<typename Config::LossScaler, typename Config::Optimizer,
                         typename Config::MasterWeights, Config::rounds_states,
                         ModelParallelCommunicator<typename Config::Communicator>,
                         ExpertCommunicator<typename Config::Communicator>>;

/// @brief The scalars of a step that host and queues share, in backend memory. `StepControl` owns
/// it; only commands on the communication queue write it.
template <class Step>
struct StepState {
    StepReports* reports = nullptr;
    typename Step::LossScaler::Options scaler_options{};
    typename Step::LossScaler::State scaler{};
    float captured_scale = 1.0F;
    UpdateDecision decision{};
    bool is_exhausted = false; ///< the last step overflowed at the minimum loss scale
    std::uint64_t step_count = 0;
    std::uint64_t skipped_in_a_row = 0; ///< the last steps, up to one that was not skipped
    [[no_unique_address]] typename Step::MasterWeights::Options master_options{};
    StepIntegers integers{};
    std::int64_t weight = 0; ///< ReductionKind::weighted_mean: the sum of the weights of all ranks
    [[no_unique_address]] ModelState<Step::is_cut> model{};
};

/// @brief How a rank delivered gradients in a step. Smaller values are better evidence.
///
/// Every step reduces the index of the first non-finite element to its minimum over the ranks. A
/// rank initialises that index with one of these values, which are larger than any index. So the
/// best evidence of all ranks costs no extra message.
enum class GradientEvidence : std::int64_t {
    delivered = ops::Inspection::none - 2, ///< handed over, written to memory of the engine, or
                                           ///< leased in caller-owned memory without being cleared
    doubtful = ops::Inspection::none - 1,  ///< in caller-owned memory that the engine cleared in
                                           ///< this step, perhaps too late, or that was reported
                                           ///< without `gradients`, perhaps before it was written
    nothing = ops::Inspection::none        ///< no gradient was delivered
};

/// @brief One parameter group in backend memory, or one parameter if updates are counted for each.
/// A parameter uses only the members of the current step. `StepControl` owns the arrays of them.
template <class Optimizer>
struct GroupState {
    typename Optimizer::Options options{};
    double learning_rate_factor = 1.0;
    typename Optimizer::Hyper hyper{}; ///< for the current step
    bool is_left = false;              ///< the current step leaves the parameter as it is
    bool is_clipped = true;
    float factor =
        1.0F; ///< multiplies the gradients of the current step: unscales, averages, clips
};

/// @brief Returns the groups as the options of an engine set them.
template <class Group, class Options>
[[nodiscard]] List<Group> initial_groups(Options const& options, std::size_t count) {
    List<Group> groups(count);
    for (std::size_t group = 0; group < count; ++group) {
        bool const is_listed = group < options.groups.size();
        groups[group].options = is_listed ? options.groups[group].optimizer : options.optimizer;
        groups[group].learning_rate_factor =
            is_listed ? options.groups[group].learning_rate_factor : 1.0;
        groups[group].is_clipped = !is_listed || options.groups[group].is_clipped;
    }
    return groups;
}

// Small commands on the scalars of a step, which `StepControl` enqueues; `DecideStep` is the large
// one. They are named functors outside that class because a device runs them as well.

/// @brief Fixes the loss scale of the step that begins.
template <class Step>
struct CaptureScale {
    StepState<Step>* state;
    ZERO_HOST_DEVICE void operator()() const { state->captured_scale = state->scaler.scale; }
};

/// @brief Resets the inspection of the gradients, and notes how this rank delivered them and in
/// which order it acquired units.
template <class Step>
struct ClearInspection {
    StepState<Step>* state;
    GradientEvidence evidence;
    OrderEvidence order;
    ZERO_HOST_DEVICE void operator()() const {
        state->integers.inspection.clear();
        state->integers.inspection.first_non_finite = static_cast<std::int64_t>(evidence);
        state->integers.agreement.set(order);
    }
};

/// @brief Adds what was not finite in replicas that another model rank counts: they must skip the
/// step as well.
template <class Step>
struct AddLeftOut {
    StepState<Step>* state;
    ZERO_HOST_DEVICE void operator()() const {
        constexpr std::size_t non_finite = ops::Inspection::count - 1;
        ops::Inspection const& left_out = state->model.left_out;
        ops::Inspection& all = state->integers.inspection;
        all.sums[non_finite] += left_out.sums[non_finite];
        all.first_non_finite = left_out.first_non_finite < all.first_non_finite
                                   ? left_out.first_non_finite
                                   : all.first_non_finite;
        state->model.left_out.clear();
    }
};

/// @brief Replaces the minima of the data ranks by those that model ranks reduce: the negative
/// evidence of gradients, since the part with the worst decides, and whether all acquired units in
/// one order. Experts without a token stop nobody, so the best evidence decides there.
template <class Step>
struct PackForModel {
    static constexpr std::size_t count = 2;

    StepState<Step>* state;
    std::int64_t* minima;
    bool compares_order;
    ZERO_HOST_DEVICE void operator()() const {
        constexpr auto delivered = static_cast<std::int64_t>(GradientEvidence::delivered);
        OrderAgreement agreement;
        for (std::size_t i = 0; i < StepIntegers::minima(true); ++i) {
            state->model.minima[i] = minima[i];
        }
        for (std::size_t i = 0; i < OrderAgreement::count; ++i) {
            agreement.numbers[i] = minima[1 + i];
        }
        minima[0] = minima[0] < delivered ? delivered : minima[0];
        if constexpr (!Step::has_experts) {
            minima[0] = -minima[0];
        }
        minima[1] = compares_order && !agreement.is_same() ? 0 : 1;
    }
};

/// @brief The reverse, after the reduction. The index of an element that is not finite stays that
/// of this part of the model.
template <class Step>
struct UnpackFromModel {
    StepState<Step>* state;
    std::int64_t* minima;
    ZERO_HOST_DEVICE void operator()() const {
        constexpr auto delivered = static_cast<std::int64_t>(GradientEvidence::delivered);
        std::int64_t const evidence = Step::has_experts ? minima[0] : -minima[0];
        state->model.has_stopped = minima[1] == 0;
        state->model.has_silent_part =
            !Step::has_experts && evidence == static_cast<std::int64_t>(GradientEvidence::nothing);
        for (std::size_t i = 0; i < StepIntegers::minima(true); ++i) {
            minima[i] = state->model.minima[i];
        }
        minima[0] = minima[0] < delivered ? minima[0] : evidence;
    }
};

/// @brief `*to = value`
template <class T>
struct Assign {
    T* to;
    T value;
    ZERO_HOST_DEVICE void operator()() const { *to = value; }
};

} // namespace ZERO_NAMESPACE::detail
