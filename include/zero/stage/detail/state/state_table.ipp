#pragma once

#include "../../../core/split_float.hpp"
#include "../../../layout/detail/partition/order_by.hpp"
#include "../../../layout/parameter_spec.hpp"
#include "../../../layout/piece.hpp"
#include "../../../ops/block_scale.hpp"
#include "state_table.hpp"

#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void BlockCodec::write(float const* values, std::size_t elements,
                                        std::byte* codes) const {
    for (std::size_t begin = 0; begin < elements; begin += coded_elements) {
        float block[coded_elements] = {};
        std::memcpy(block, values + begin,
                    smaller(coded_elements, elements - begin) * sizeof(float));
        encode(block, reinterpret_cast<std::uint8_t*>(codes) + begin / coded_elements * bytes);
    }
}

ZERO_COLD_INLINE void BlockCodec::read(std::byte const* codes, std::size_t first,
                                       std::size_t elements, float* out) const {
    float block[coded_elements];
    for (std::size_t i = 0; i < elements; ++i) {
        std::size_t const at = first + i;
        if (i == 0 || at % coded_elements == 0) {
            decode(reinterpret_cast<std::uint8_t const*>(codes) + at / coded_elements * bytes,
                   block);
        }
        out[i] = block[at % coded_elements];
    }
}

ZERO_COLD_INLINE StateTable::StateTable(FlatLayout const& layout, List<HeldArray> arrays)
    : _layout(&layout), _arrays(std::move(arrays)) {
    std::size_t const parameters = layout.parameters().size();
    for (HeldArray& array : _arrays) {
        array.slices = array.by_parameter();
        std::vector<std::size_t> first(parameters + 1, array.slices.size());
        for (std::size_t slice = array.slices.size(); slice-- > 0;) {
            first[array.slices[slice].parameter] = slice;
        }
        for (std::size_t parameter = parameters; parameter-- > 0;) {
            first[parameter] = smaller(first[parameter], first[parameter + 1]);
        }
        _first.push_back(std::move(first));
    }
}

ZERO_COLD_INLINE std::span<HeldSlice const> StateTable::slices(std::size_t array,
                                                               std::size_t parameter) const {
    auto const& first = _first[array];
    return as_span(_arrays[array].slices)
        .subspan(first[parameter], first[parameter + 1] - first[parameter]);
}

ZERO_COLD_INLINE std::size_t StateTable::find(std::size_t type, ArrayKind kind,
                                              std::size_t state) const noexcept {
    std::size_t array = 0;
    while (array < _arrays.size()
           && !(_arrays[array].type == type && _arrays[array].form.kind == kind
                && _arrays[array].form.index == state)) {
        ++array;
    }
    return array;
}

ZERO_COLD_INLINE std::size_t StateTable::array_of(ArrayKind kind, std::size_t state,
                                                  std::size_t parameter) const noexcept {
    auto const& spec = _layout->parameter(parameter);
    bool const is_weight = kind == ArrayKind::parameter && !spec.trainable;
    std::size_t const codes = is_weight ? find(spec.type, ArrayKind::frozen) : _arrays.size();
    return codes != _arrays.size() ? codes : find(spec.type, kind, state);
}

ZERO_COLD_INLINE std::size_t StateTable::lead(ArrayKind kind, std::size_t state,
                                              std::size_t parameter) const {
    auto const& spec = _layout->parameter(parameter);
    if (kind != ArrayKind::parameter || !spec.trainable) {
        return array_of(kind, state, parameter);
    }
    // Without master weights the next weight is the parameter itself. Of a replicated parameter
    // only the part that this rank updates counts, which is the part of its first optimizer state.
    for (ArrayKind const own : {ArrayKind::master, ArrayKind::remainder, ArrayKind::state}) {
        if (std::size_t const array = find(spec.type, own); array != _arrays.size()) {
            return array;
        }
    }
    return find(spec.type, ArrayKind::parameter);
}

ZERO_COLD_INLINE std::vector<Range> StateTable::held(ArrayKind kind, std::size_t state,
                                                     std::size_t parameter) const {
    std::vector<Range> ranges;
    std::size_t const array = lead(kind, state, parameter);
    if (array != _arrays.size()) {
        for (HeldSlice const& slice : slices(array, parameter)) {
            ranges.push_back({slice.begin, slice.begin + slice.elements});
        }
    }
    return ranges;
}

template <class Visitor>
void StateTable::for_chunks(std::size_t array, std::size_t parameter, Range range,
                            Visitor&& visit) const {
    for (HeldSlice const& slice : slices(array, parameter)) {
        Range const common = intersection({slice.begin, slice.begin + slice.elements}, range);
        for (std::size_t begin = common.begin; begin < common.end;) {
            std::size_t const into = (begin - slice.begin) % state_chunk;
            std::size_t const end = smaller(common.end, begin + state_chunk - into);
            visit(slice, Range{begin, end});
            begin = end;
        }
    }
}

ZERO_COLD_INLINE HeldSlice const& StateTable::slice_at(std::size_t array, std::size_t parameter,
                                                       std::size_t element) const {
    auto const all = slices(array, parameter);
    std::size_t index = 0;
    while (index + 1 < all.size() && all[index].begin + all[index].elements <= element) {
        ++index;
    }
    return all[index];
}

ZERO_COLD_INLINE void StateTable::load(ArrayKind kind, std::size_t state, std::size_t parameter,
                                       Range range, Copy copy, float* out) const {
    std::size_t const type = _layout->parameter(parameter).type;
    std::size_t const leading = lead(kind, state, parameter);
    ArrayKind const own = _arrays[leading].form.kind;
    // A weight without a copied master weight is read from the parameter.
    bool const is_parameter = kind == ArrayKind::parameter && own != ArrayKind::master;
    std::size_t const array = is_parameter ? array_of(ArrayKind::parameter, 0, parameter) : leading;
    std::size_t const remainders = find(type, ArrayKind::remainder);
    std::size_t const bits = find(type, ArrayKind::rounded_up);
    std::size_t const scales = find(type, ArrayKind::state_scale, state);
    bool const is_split = is_parameter && own == ArrayKind::remainder;
    bool const is_scaled = kind == ArrayKind::state && scales != _arrays.size();
    ItemBytes items;
    ItemBytes second;
    ItemBytes third;
    for_chunks(leading, parameter, range, [&](HeldSlice const& slice, Range chunk) {
        HeldSlice const& values = is_parameter ? slice_at(array, parameter, chunk.begin) : slice;
        ArrayForm const& form = _arrays[array].form;
        auto const fetch = [&](ItemBytes& to, HeldSlice const& from, ArrayForm const& of) {
            std::size_t const first = (chunk.begin - from.begin) / of.item_elements;
            std::size_t const end =
                (chunk.end - from.begin + of.item_elements - 1) / of.item_elements;
            copy(to.data(), static_cast<std::byte const*>(from.data) + first * of.item_bytes,
                 (end - first) * of.item_bytes);
        };
        fetch(items, values, form);
        if (is_split) {
            fetch(second, slice, _arrays[remainders].form);
            fetch(third, slice_at(bits, parameter, chunk.begin), _arrays[bits].form);
        } else if (is_scaled) {
            fetch(second, slice_at(scales, parameter, chunk.begin), _arrays[scales].form);
        }
        std::size_t const into = chunk.begin - slice.begin; // offset of the chunk in its slice
        if (form.codec != nullptr) {
            form.codec->read(items.data(), into % form.item_elements, chunk.size(),
                             out + (chunk.begin - range.begin));
            return;
        }
        for (std::size_t i = 0; i < chunk.size(); ++i) {
            float& value = out[chunk.begin - range.begin + i];
            if (is_split) {
                std::size_t const bit = into % 8 + i;
                value = join({item_at<bfloat16>(items.data(), i),
                              item_at<std::uint16_t>(second.data(), i),
                              (std::to_integer<unsigned>(third[bit / 8]) >> bit % 8 & 1U) != 0});
            } else if (is_scaled) {
                std::size_t const block =
                    (into % ops::scaled_block_elements + i) / ops::scaled_block_elements;
                value =
                    decode_state(form.dtype, items.data(), i, item_at<float>(second.data(), block));
            } else {
                value = decode_item(form.dtype, items.data(), i);
            }
        }
    });
}

ZERO_COLD_INLINE void StateTable::store(ArrayKind kind, std::size_t state, std::size_t parameter,
                                        Range range, Copy copy, float const* values) const {
    if (kind == ArrayKind::parameter) {
        store_weights(parameter, range, copy, values);
    } else if (kind == ArrayKind::state) {
        store_states(state, parameter, range, copy, values);
    } else {
        store_items(find(_layout->parameter(parameter).type, kind), parameter, range, copy, values);
    }
}

/// Rounds values to the items of an array. @param through what they are rounded to before
ZERO_COLD_INLINE void StateTable::store_items(std::size_t array, std::size_t parameter, Range range,
                                              Copy copy, float const* values, DType through) const {
    ArrayForm const& form = _arrays[array].form;
    ItemBytes items;
    for_chunks(array, parameter, range, [&](HeldSlice const& slice, Range chunk) {
        if (form.codec != nullptr) {
            form.codec->write(values + (chunk.begin - range.begin), chunk.size(), items.data());
        }
        for (std::size_t i = 0; form.codec == nullptr && i < chunk.size(); ++i) {
            float const given = values[chunk.begin - range.begin + i];
            float const value = through == DType::float32 ? given : rounded_to(through, given);
            if (form.kind == ArrayKind::remainder) {
                put_item(items.data(), i, split(value).remainder);
            } else {
                encode_item(form.dtype, items.data(), i, value);
            }
        }
        copy(static_cast<std::byte*>(slice.data) + form.bytes(chunk.begin - slice.begin),
             items.data(), form.bytes(chunk.size()));
    });
}

/// Stores the bits of split weights. Bytes may be shared with elements outside the range.
ZERO_COLD_INLINE void StateTable::store_bits(std::size_t array, std::size_t parameter, Range range,
                                             Copy copy, float const* values) const {
    ItemBytes bits;
    for_chunks(array, parameter, range, [&](HeldSlice const& slice, Range chunk) {
        std::size_t const begin = chunk.begin - slice.begin;
        std::size_t const bytes = (begin % 8 + chunk.size() + 7) / 8;
        std::byte* const at = static_cast<std::byte*>(slice.data) + begin / 8;
        copy(bits.data(), at, bytes);
        for (std::size_t i = 0; i < chunk.size(); ++i) {
            std::size_t const bit = begin % 8 + i;
            std::byte const mask{static_cast<unsigned char>(1U << bit % 8)};
            bool const is_up = split(values[chunk.begin - range.begin + i]).is_rounded_up;
            bits[bit / 8] = is_up ? bits[bit / 8] | mask : bits[bit / 8] & ~mask;
        }
        copy(at, bits.data(), bytes);
    });
}

ZERO_COLD_INLINE void StateTable::store_weights(std::size_t parameter, Range range, Copy copy,
                                                float const* values) const {
    auto const& spec = _layout->parameter(parameter);
    std::size_t const array = array_of(ArrayKind::parameter, 0, parameter);
    std::size_t const masters =
        spec.trainable ? find(spec.type, ArrayKind::master) : _arrays.size();
    std::size_t const remainders =
        spec.trainable ? find(spec.type, ArrayKind::remainder) : _arrays.size();
    if (masters == _arrays.size()) {
        store_items(array, parameter, range, copy, values);
    } else { // parameters are rounded from the stored master weights, as in an update
        store_items(masters, parameter, range, copy, values);
        store_items(array, parameter, range, copy, values, _arrays[masters].form.dtype);
    }
    if (remainders != _arrays.size()) {
        store_items(remainders, parameter, range, copy, values);
        store_bits(find(spec.type, ArrayKind::rounded_up), parameter, range, copy, values);
    }
}

ZERO_COLD_INLINE void StateTable::store_states(std::size_t state, std::size_t parameter,
                                               Range range, Copy copy, float const* values) const {
    std::size_t const type = _layout->parameter(parameter).type;
    std::size_t const array = find(type, ArrayKind::state, state);
    std::size_t const scales = find(type, ArrayKind::state_scale, state);
    if (scales == _arrays.size()) {
        store_items(array, parameter, range, copy, values);
        return;
    }
    ArrayForm const& form = _arrays[array].form;
    bool const is_power = form.dtype == DType::power8;
    ItemBytes items;
    ItemBytes scale_items;
    for_chunks(array, parameter, range, [&](HeldSlice const& slice, Range chunk) {
        std::size_t const blocks = _arrays[scales].form.bytes(chunk.size()) / sizeof(float);
        for (std::size_t block = 0; block < blocks; ++block) {
            std::size_t const begin = block * ops::scaled_block_elements;
            std::size_t const end = smaller(begin + ops::scaled_block_elements, chunk.size());
            float const* const from = values + (chunk.begin - range.begin);
            float largest = 0.0F;
            bool is_signed = false;
            for (std::size_t i = begin; i < end; ++i) {
                largest = larger(largest, ops::finite_magnitude(from[i]));
                is_signed = is_signed || from[i] < 0.0F;
            }
            float const scale =
                is_power ? ops::state_scale<power8>(largest, is_signed) : ops::block_scale(largest);
            put_item(scale_items.data(), block, scale);
            for (std::size_t i = begin; i < end; ++i) {
                if (is_power) {
                    float const inverse = ops::inverse_state_scale<power8>(scale);
                    float const place = ops::power_place(from[i], inverse, is_signed);
                    put_item(items.data(), i, ops::round_place(place, 0x80000000U)); // to nearest
                    continue;
                }
                float const scaled = from[i] * ops::inverse_block_scale(scale);
                encode_item(form.dtype, items.data(), i, ops::keep_from_zero(scaled, from[i]));
            }
        }
        std::size_t const into = chunk.begin - slice.begin;
        HeldSlice const& scale = slice_at(scales, parameter, chunk.begin);
        copy(static_cast<std::byte*>(slice.data) + form.bytes(into), items.data(),
             form.bytes(chunk.size()));
        copy(static_cast<std::byte*>(scale.data) + _arrays[scales].form.bytes(into),
             scale_items.data(), blocks * sizeof(float));
    });
}

ZERO_COLD_INLINE bool HeldArray::has(FlatLayout const& layout, std::size_t parameter) const {
    ParameterSpec const& spec = layout.parameter(parameter);
    return spec.type == type && spec.elements != 0 && (spec.trainable ? has_trainable : has_frozen);
}

ZERO_COLD_INLINE std::size_t HeldArray::largest(FlatLayout const& layout) const {
    std::size_t most = 0;
    for (std::size_t parameter = 0; parameter < layout.parameters().size(); ++parameter) {
        most =
            larger(most, has(layout, parameter) ? bytes(layout.parameter(parameter).elements) : 0);
    }
    return most;
}

/// Whether `slice` is before `other` in the same parameter.
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
