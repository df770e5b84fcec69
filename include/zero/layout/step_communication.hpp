#pragma once

#include "../core/detail/namespace.hpp"
#include "element_sizes.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "placement.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief The collectives of one purpose in a step, as one rank sees them.
struct CommunicationTerm {
    /// @brief Number of reduce-scatters and all-gathers. An all-reduce counts as one of each.
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0; ///< read from other ranks

    friend bool operator==(CommunicationTerm, CommunicationTerm) = default;
};

/// @brief The collectives of one optimizer step by purpose, as one rank sees them.
struct StepCommunication {
    CommunicationTerm gathers;    ///< parameters of acquired units (stage 3)
    CommunicationTerm reductions; ///< gradients; in stage 0 the gather of their sums as well
    CommunicationTerm publishes;  ///< updated parameters (stages 1 and 2)

    /// @brief All-reduces of a few integers: the norm, the overflow and the settings. Each is one
    /// call, and its bytes are the payload.
    CommunicationTerm control;

    friend bool operator==(StepCommunication const&, StepCommunication const&) = default;
};

/// @brief Properties of a step, besides layout and stage, that set its number of calls and bytes.
struct StepCommunicationOptions {
    ElementSizes sizes{}; ///< element sizes of the only parameter type of the layout

    /// @brief Elements of the buffer in which gradients are converted to the communication type; a
    /// larger bucket is sent in chunks. 0: gradients are not converted.
    std::size_t wire_elements = 0;
    std::size_t control_calls = 1;                    ///< 2 if gradients are inspected over a
                                                      ///< communicator that does not sum and
                                                      ///< minimise integers together
    std::size_t control_bytes = sizeof(std::int64_t); ///< payload of all of them; stage 3 adds
                                                      ///< 24 that compare the order of units
    GatherOptions gather{};                           ///< as for `step_traffic_of_rank`
};

/// @brief Counts the collectives of one optimizer step and the bytes that a rank reads in them:
/// those of `step_traffic_of_rank`, split by purpose. O(buckets + acquired units).
///
/// With uneven extents take the maximum over the ranks.
/// @param stage 0 to 3
/// @param micro_steps micro-steps accumulated in the step, at least 1
/// @param acquired_units the units acquired during the step, once per acquisition (stage 3 only)
/// @throws InvalidArgument if the layout has no such rank or unit, or an argument is out of range
StepCommunication count_step_communication(FlatLayout const& layout, std::size_t rank, int stage,
                                           ReductionSchedule schedule, std::size_t micro_steps,
                                           std::span<std::size_t const> acquired_units,
                                           StepCommunicationOptions const& options = {});

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/step_communication.ipp"
#endif
