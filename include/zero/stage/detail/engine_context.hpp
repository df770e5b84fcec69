#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/memory_plan.hpp"
#include "../../layout/placement.hpp"
#include "../parameter.hpp"
#include "../stage_options.hpp"
#include "placed_buffer.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief What the parts of an engine are made from. Everything that it points to outlives them.
template <class Config>
struct EngineContext {
    FlatLayout const* layout;
    typename Config::Communicator* communicator;
    typename Config::Backend::Queue queue;    ///< of communication and update
    std::span<AnyParameter const> parameters; ///< only during construction
    StageOptions<Config> const* options;
    MemoryResource* memory;
    StageRow row;
    ReductionSchedule schedule;
    float predivide;                     ///< what payloads are divided by before they are sent
    std::size_t further_gradient_leases; ///< `leases_until_rebuild` for as long as it counts

    [[nodiscard]] std::size_t rank() const {
        return static_cast<std::size_t>(communicator->rank());
    }

    /// @brief What the memory formulas need of one parameter type.
    [[nodiscard]] LayoutTotals totals(std::size_t type) const {
        return count_layout(*layout, rank(), row, options->storage, options->extra_leases, type,
                            further_gradient_leases);
    }
};

/// @brief A context for the memory of one parameter type.
template <class Config>
struct TypeContext : EngineContext<Config> {
    std::size_t type;
};

/// @brief Memory for one number per element that this rank updates of a parameter type.
template <class T, class Config>
PlacedBuffer<T> placed_for_optimizer(TypeContext<Config> const& context, BufferKind kind) {
    FlatLayout const& layout = *context.layout;
    return {layout,
            layout.trainable_buckets(),
            context.type,
            context.rank(),
            context.row.optimizer_state,
            *context.memory,
            kind};
}

} // namespace ZERO_NAMESPACE::detail
