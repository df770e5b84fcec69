#pragma once

#include "../../backend/update_decision.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"
#include "../step_figures.hpp"
#include "order_evidence.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The integers that the ranks reduce to decide on a step, in the order in which they are
/// sent: the sums of the inspection; the index of its first non-finite element, which carries the
/// `GradientEvidence`; and, if parameters are sharded, the order of acquisitions.
struct StepIntegers {
    ops::Inspection inspection{};
    OrderAgreement agreement{};

    static constexpr std::size_t sums = ops::Inspection::count;

    /// @brief Returns the number of minima, which follow the sums.
    [[nodiscard]] static constexpr std::size_t minima(bool compares_order) noexcept {
        return 1 + (compares_order ? OrderAgreement::count : 0);
    }
};
static_assert(std::is_standard_layout_v<StepIntegers>
                  && offsetof(StepIntegers, agreement)
                         == (ops::Inspection::count + 1) * sizeof(std::int64_t),
              "zero: the integers of a step are one array.");

/// @brief The scalars of a step that host and queues share, in backend memory. `StepControl` owns
/// it; only commands on the communication queue write it.
template <class Config>
struct StepState {
    static constexpr std::size_t reports_kept = 16;

    typename Config::LossScaler::Options scaler_options{};
    typename Config::LossScaler::State scaler{};
    float captured_scale = 1.0F;
    UpdateDecision decision{};
    bool is_exhausted = false; ///< the last step overflowed at the minimum loss scale
    std::uint64_t step_count = 0;
    std::uint64_t skipped_in_a_row = 0; ///< the last steps, up to one that was not skipped
    [[no_unique_address]] typename Config::MasterWeights::Options master_options{};
    StepIntegers integers{};
    std::int64_t weight = 0; ///< ReductionKind::weighted_mean: the sum of the weights of all ranks
    std::uint64_t last_serial = 0; ///< number of the last report
    std::array<StepFigures, reports_kept> reports{};
};

} // namespace ZERO_NAMESPACE::detail
