#pragma once

#include "parameters.hpp"

#include <zero/comm/traffic_count.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/detail/plan/count_blocks.hpp>
#include <zero/layout/memory_plan.hpp>
#include <zero/stage/trace_report.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace gpt {

/// @brief The results of one rank.
struct RankSummary {
    zero::MemoryPlan plan;
    std::array<std::size_t, zero::buffer_kinds> allocated{};
    zero::TrafficCount traffic; ///< traffic of the training steps, counted by the transport
    zero::Traffic formula;      ///< elements of the training steps, by formulas
    std::size_t leases = 0;     ///< planned elements of gathered parameters
    double seconds = 0.0;       ///< duration of the training steps
    double validation_loss_sum = 0.0;
    std::size_t validation_batches = 0;
    double communication = 0.0; ///< seconds of communication in the timeline
    double exposed = 0.0;       ///< the part of it that the model waited for
};

/// @brief The result of a training.
struct Summary {
    std::uint64_t hash = 0;       ///< hash of the bits of all final parameters
    double validation_loss = 0.0; ///< nats per byte
    std::size_t parameters = 0;
    zero::TraceReport trace; ///< stage 3: the gathers of the training steps, on rank 0
    std::vector<RankSummary> ranks;

    /// @brief Derives the other members from the model and the results of the ranks.
    void conclude(std::vector<Parameter> const& model) {
        double sum = 0.0;
        std::size_t batches = 0;
        for (auto const& own : ranks) {
            sum += own.validation_loss_sum;
            batches += own.validation_batches;
        }
        validation_loss = sum / static_cast<double>(batches);
        for (auto const& parameter : model) {
            parameters += parameter.elements;
        }
    }
};

template <class T>
std::uint64_t hash_bits(std::uint64_t hash, std::span<T> values) noexcept {
    for (auto const& value : values) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(value));
        hash = (hash ^ bits) * 0x100000001b3U;
        hash ^= hash >> 29U;
    }
    return hash;
}

} // namespace gpt
