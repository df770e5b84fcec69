#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../layout/flat_layout.hpp"
#include "engine_context.hpp"
#include "placed_buffer.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Allocates one T per element of a parameter type that this rank updates.
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
