#pragma once

#include "held_array.hpp"

#include "../../layout/detail/order_by.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../../layout/piece.hpp"

#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE bool HeldArray::has(FlatLayout const& layout, std::size_t parameter) const {
    ParameterSpec const& spec = layout.parameter(parameter);
    return spec.type == type && spec.elements != 0 && (spec.trainable || has_frozen);
}

ZERO_COLD_INLINE std::size_t HeldArray::largest(FlatLayout const& layout) const {
    std::size_t most = 0;
    for (std::size_t parameter = 0; parameter < layout.parameters().size(); ++parameter) {
        most =
            larger(most, has(layout, parameter) ? bytes(layout.parameter(parameter).elements) : 0);
    }
    return most;
}

/// Whether `slice` lies before `other` in the same parameter.
ZERO_COLD_INLINE bool precedes(HeldSlice const& slice, HeldSlice const& other) {
    return slice.parameter == other.parameter && slice.begin < other.begin;
}

ZERO_COLD_INLINE List<HeldSlice> HeldArray::by_parameter() const {
    std::vector<std::uint64_t> parameters;
    for (HeldSlice const& slice : slices) {
        parameters.push_back(slice.parameter);
    }
    List<HeldSlice> sorted;
    for (std::size_t const index : order_by(parameters)) {
        sorted.push_back(slices[index]);
        // a parameter of an adopted block has few slices, often in descending order
        for (std::size_t at = sorted.size() - 1; at != 0 && precedes(sorted[at], sorted[at - 1]);
             --at) {
            std::swap(sorted[at], sorted[at - 1]);
        }
    }
    return sorted;
}

ZERO_COLD_INLINE std::vector<std::size_t> HeldArray::byte_cuts(FlatLayout const& layout,
                                                               std::size_t parameter) const {
    std::vector<std::size_t> cuts;
    PiecePosition const at = layout.parameter_pieces(parameter).front();
    Piece const& piece = layout.piece(at);
    Cuts const bucket_cuts = layout.cuts(at.bucket);
    for (std::size_t rank = 0; rank < bucket_cuts.size(); ++rank) {
        std::size_t const end = larger(bucket_cuts[rank], piece.bucket_begin) - piece.bucket_begin;
        cuts.push_back(bytes(smaller(end, piece.elements)));
    }
    return cuts;
}

} // namespace ZERO_NAMESPACE::detail
