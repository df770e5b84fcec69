#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/set_by_name.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The reaction of a stage that shards parameters to a micro-step that acquires another unit
/// than the previous micro-step did at the same point.
enum class ChangedOrder {
    record_again, ///< gathers on demand until the micro-step ends, and records its order
    error         ///< `acquire` throws OutOfOrder and changes nothing
};

/// @brief Sets when a stage that shards parameters (stage 3) gathers units in advance, and how long
/// it keeps them. Other stages do not use it; `zero::describe(engine)` says so. It must be equal on
/// all ranks. No option changes a bit of a result.
///
/// Elements are counted with padding, over all parameter types. Distances are measured in the order
/// in which the last micro-step acquired units; the first micro-step only records it, so it gathers
/// every unit on demand. Memory is planned for a forward pass that visits the units by number and a
/// backward pass that visits them in the unit order of the layout. In another order a unit that
/// finds no room is gathered on demand or released early. What is gathered does not depend on when
/// a rank releases a unit, as long as that is before it acquires the unit after the next one. A
/// unit that is held longer must be held on every rank.
struct GatherOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// Means "without a limit" or "all units".
    static constexpr std::size_t all = static_cast<std::size_t>(-1);

    /// Most elements that are gathered in advance: units that follow the acquired one are gathered
    /// while the sum of their elements does not exceed it. 0: none. Default: one unit, however
    /// large.
    std::optional<std::size_t> prefetch_elements{};

    /// Parameters with at most this many elements (without padding) are persistent: they stay
    /// gathered from their first use until the next update. They share one bucket per type, so one
    /// all-gather fetches them. 0: none.
    std::size_t persistence_threshold = 0;

    /// Most elements of all persistent parameters together, without padding. They are chosen in
    /// registration order; a parameter that would exceed the limit is not persistent.
    std::size_t max_persistent_elements = all;

    /// A unit is not released if the same micro-step acquires it again, and if the units in between
    /// have at most this many elements together. Empty: every unit is released.
    std::optional<std::size_t> max_reuse_distance{};

    /// A unit is not released if the same micro-step acquires it again, and if it acquires fewer
    /// than this many other units in between. With k, the last k units of a forward pass stay
    /// gathered until their backward pass. 0: none; `all`: every unit.
    std::size_t keep_after_forward = 0;

    /// Most elements of units that stay gathered from their first use until the next update, so
    /// that further passes and micro-steps of a step gather them no more. Units are chosen by
    /// number while their elements, without padding and those of persistent parameters, fit. 0:
    /// none; `all`: every unit, and a step gathers each once.
    std::size_t keep_until_update = 0;

    /// Most elements that are gathered at once. Units are gathered in advance and kept only within
    /// it; it must hold the largest unit, the persistent parameters and the units that are kept
    /// until the update. A program that holds two units at once needs room for both. With several
    /// parameter types it bounds each type's leases as well as the elements of all types that are
    /// gathered at once.
    std::size_t max_live_elements = all;

    /// The reaction to a changed order.
    ChangedOrder changed_order = ChangedOrder::record_again;

    /// Units are gathered over a communicator of their own, a `split` of the same ranks, on a queue
    /// of their own. So a gather does not wait behind a reduction: where the transport carries both
    /// at once, a backward pass takes the longer of the two instead of their sum. The communicator
    /// must be a `SplittableCommunicator`, and its `split` holds memory of its own. Every rank
    /// destroys its engine at the same point of its program, because a transport may wait there for
    /// the others. A single rank gathers nothing, and ignores it.
    bool own_communicator = false;

    /// @brief Returns whether memory is planned for two consecutive units, as without any option.
    [[nodiscard]] constexpr bool has_default_memory() const noexcept {
        return !prefetch_elements.has_value() && persistence_threshold == 0
               && !max_reuse_distance.has_value() && keep_after_forward == 0
               && keep_until_update == 0 && max_live_elements == all;
    }
};

/// @brief The arguments of `make_layout` besides the parameters.
struct LayoutOptions {
    std::size_t world = 1;             ///< W, the number of ranks, at least 1
    std::size_t element_bytes = 4;     ///< bytes per element of the first parameter type
    bool buckets_inside_units = false; ///< stage 3: no bucket holds parameters of two units
    std::vector<std::size_t> further_element_bytes{}; ///< bytes per element of the second parameter
                                                      ///< type, the third, ...
    std::vector<std::size_t> unit_order{}; ///< order in which units finish their backward pass,
                                           ///< each once; empty: by descending number
    std::size_t persistence_threshold = 0; ///< as in `GatherOptions`; stage 3 only
    std::size_t max_persistent_elements = static_cast<std::size_t>(-1); ///< as in `GatherOptions`
    std::size_t keep_until_update = 0; ///< as in `GatherOptions`; stage 3 only

    /// @brief Returns the number of parameter types of the model.
    [[nodiscard]] std::size_t types() const noexcept { return 1 + further_element_bytes.size(); }

    /// @brief Returns the bytes per element of a parameter type.
    [[nodiscard]] std::size_t bytes_of(std::size_t type) const {
        return type == 0 ? element_bytes : further_element_bytes[type - 1];
    }
};

} // namespace ZERO_NAMESPACE
