#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/piece.hpp"
#include "../../layout/range.hpp"
#include "array_kind.hpp"
#include "engine_context.hpp"
#include "held_array.hpp"
#include "parameter_store.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the parameters of one type that this rank holds. @param layout the layout for
/// which `memory` was made
template <class Config, class Types>
[[gnu::cold]] HeldArray held_parameters(ParameterStore<Config, Types> const& memory,
                                        FlatLayout const& layout,
                                        EngineContext<Config> const& context, std::size_t type) {
    using T = typename Types::Parameter;
    HeldArray array{type, {ArrayKind::parameter, 0, dtype_of<T>(), sizeof(T)}, true, {}};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        if (layout.bucket(bucket).type == type) {
            Range const held = context.row.shards_parameters()
                                   ? layout.extent(bucket, context.rank())
                                   : Range{0, layout.elements(bucket)};
            layout.for_slices(bucket, held, [&](Piece const& piece) {
                array.slices.push_back({piece.parameter, piece.parameter_begin, piece.elements,
                                        memory.slice(bucket, piece)});
            });
        }
    }
    // Frozen parameters of an adopted block lie in no bucket.
    for (std::size_t parameter = 0; parameter < layout.parameters().size(); ++parameter) {
        auto const& spec = layout.parameter(parameter);
        if (spec.type == type && spec.elements != 0 && layout.parameter_pieces(parameter).empty()) {
            Piece piece{};
            piece.parameter = parameter;
            array.slices.push_back({parameter, 0, spec.elements, memory.slice(0, piece)});
        }
    }
    return array;
}

} // namespace ZERO_NAMESPACE::detail
