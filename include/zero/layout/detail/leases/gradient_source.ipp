#pragma once

#include "../../gradient_source.hpp"

#include "../../../core/detail/light_std.hpp"
#include "../../padding.hpp"
#include "../../parameter_spec.hpp"
#include "../../piece.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE GradientSource gradient_source(FlatLayout const& layout, std::size_t bucket) {
    bool is_engines = layout.pieces(bucket).empty();
    bool is_in_block = !layout.bucket(bucket).is_staged;
    for (Piece const& piece : layout.pieces(bucket)) {
        GradientMemory const memory = layout.parameter(piece.parameter).gradient;
        is_engines = is_engines || memory == GradientMemory::engine;
        is_in_block = is_in_block && memory == GradientMemory::block;
    }
    if (is_engines) {
        return GradientSource::lease;
    }
    return is_in_block ? GradientSource::block : GradientSource::copy;
}

ZERO_COLD_INLINE bool has_gradient_block(FlatLayout const& layout) {
    for (ParameterSpec const& spec : layout.parameters()) {
        if (spec.gradient == GradientMemory::block) {
            return true;
        }
    }
    return false;
}

ZERO_COLD_INLINE std::size_t whole_gradient_elements(FlatLayout const& layout, PiecePosition at) {
    std::size_t const parameter = layout.piece(at).parameter;
    ParameterSpec const& spec = layout.parameter(parameter);
    auto const pieces = layout.parameter_pieces(parameter);
    bool const is_whole = pieces.size() > 1 && pieces.back().bucket == at.bucket
                          && pieces.back().index == at.index
                          && spec.gradient == GradientMemory::engine;
    return is_whole ? padded_size(spec.elements) : 0;
}

ZERO_COLD_INLINE std::size_t whole_gradient_elements(FlatLayout const& layout, std::size_t bucket) {
    std::size_t elements = 0;
    for (std::size_t index = 0; index < layout.pieces(bucket).size(); ++index) {
        elements += whole_gradient_elements(layout, PiecePosition{bucket, index});
    }
    return elements;
}

ZERO_COLD_INLINE bool holds_all_sums(FlatLayout const& layout, StageRow const& row) {
    return row.accumulation_buffer == Placement::replicated || layout.world() == 1;
}

ZERO_COLD_INLINE bool can_sum_in_leases(FlatLayout const& layout, StageRow const& row,
                                        std::size_t type) {
    bool can = holds_all_sums(layout, row) && !has_gradient_block(layout);
    for (std::size_t bucket = 0; can && bucket < layout.trainable_buckets(); ++bucket) {
        can = layout.bucket(bucket).type != type || whole_gradient_elements(layout, bucket) == 0;
    }
    return can;
}

ZERO_COLD_INLINE std::size_t copied_gradient_elements(FlatLayout const& layout, std::size_t type) {
    std::size_t largest = 0;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        if (layout.bucket(bucket).type == type
            && gradient_source(layout, bucket) == GradientSource::copy) {
            largest = detail::larger(largest, layout.elements(bucket));
        }
    }
    return largest;
}

} // namespace ZERO_NAMESPACE
