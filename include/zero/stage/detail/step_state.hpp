#pragma once

#include "../../backend/update_decision.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"
#include "../step_figures.hpp"
#include "order_evidence.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::detail {

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
    ops::Inspection inspection{};
    OrderAgreement agreement{}; ///< of the order of acquisitions, if parameters are sharded
    std::int64_t weight = 0; ///< ReductionKind::weighted_mean: the sum of the weights of all ranks
    std::uint64_t last_serial = 0; ///< number of the last report
    std::array<StepFigures, reports_kept> reports{};
};

} // namespace ZERO_NAMESPACE::detail
