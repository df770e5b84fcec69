#pragma once

#include "plan_manifest.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/text.hpp"
#include "safetensors_header.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE char const* dtype_text(ArrayForm const& form) noexcept {
    switch (form.dtype) {
    case DType::float32: return "F32";
    case DType::bfloat16: return "BF16";
    case DType::float16: return "F16";
    case DType::int64: return "I64";
    case DType::power8:
    case DType::bytes: break;
    }
    return form.item_bytes == 2 ? "U16" : "U8";
}

ZERO_COLD_INLINE std::optional<DType> number_dtype(std::string const& dtype,
                                                   bool has_scales) noexcept {
    if (dtype == "F32") {
        return DType::float32;
    }
    if (dtype == "BF16") {
        return DType::bfloat16;
    }
    if (dtype == "F16") {
        return DType::float16;
    }
    return has_scales && dtype == "U8" ? std::optional(DType::power8) : std::nullopt;
}

ZERO_COLD_INLINE std::uint64_t item_bytes_of(std::string const& dtype) noexcept {
    if (dtype == "F32") {
        return 4;
    }
    if (dtype == "BF16" || dtype == "F16" || dtype == "U16") {
        return 2;
    }
    return dtype == "U8" ? 1 : 0;
}

ZERO_COLD_INLINE std::vector<StoredPlace> stored_places(FlatLayout const& layout) {
    std::vector<StoredPlace> places;
    for (auto const& spec : layout.parameters()) {
        bool const is_later = spec.tile.is_later();
        std::size_t const next = places.empty() ? 0 : places.back().parameter + 1;
        places.push_back({is_later ? next - 1 : next, is_later ? spec.tile.begin : 0});
    }
    return places;
}

ZERO_COLD_INLINE std::string const& stored_name(ParameterSpec const& spec) noexcept {
    return spec.tile.of.empty() ? spec.name : spec.tile.of;
}

ZERO_COLD_INLINE std::vector<std::size_t> stored_shape(ParameterSpec const& spec) {
    bool const is_tile = !spec.tile.of.empty();
    std::vector<std::size_t> const& shape = is_tile ? spec.tile.shape : spec.shape;
    return shape.empty() ? std::vector{is_tile ? spec.tile.elements : spec.elements} : shape;
}

/// "updates.weight", or for a tile "updates.weight[128:256]".
inline constexpr char const* updates_prefix = "updates.";

ZERO_COLD_INLINE void add_updates(ManifestScalars& scalars, FlatLayout const& layout,
                                  std::span<std::uint64_t const> updates, std::uint64_t steps) {
    for (std::size_t parameter = 0; parameter < updates.size(); ++parameter) {
        auto const& spec = layout.parameter(parameter);
        if (spec.trainable && spec.elements != 0 && updates[parameter] != steps) {
            scalars.counts[updates_prefix + spec.name] = updates[parameter];
        }
    }
}

ZERO_COLD_INLINE std::uint64_t stored_updates(ManifestScalars const& scalars,
                                              ParameterSpec const& spec, std::uint64_t steps) {
    if (auto const first = scalars.counts.lower_bound(updates_prefix);
        first == scalars.counts.end() || !first->first.starts_with(updates_prefix)) {
        return steps; // no parameter has another number
    }
    std::string const whole = updates_prefix + stored_name(spec);
    if (auto const found = scalars.counts.find(whole); found != scalars.counts.end()) {
        return found->second;
    }
    // The name of a tile ends with "[begin:end]"; no other name ends so.
    std::string const first = whole + '[';
    for (auto tile = scalars.counts.lower_bound(first);
         tile != scalars.counts.end() && tile->first.compare(0, first.size(), first) == 0; ++tile) {
        std::size_t range[2] = {0, 0};
        std::size_t number = 0;
        for (std::size_t at = first.size(); at < tile->first.size(); ++at) {
            char const digit = tile->first[at];
            if (digit >= '0' && digit <= '9') {
                range[number] = 10 * range[number] + static_cast<std::size_t>(digit - '0');
            } else if (digit != ':' || ++number == 2) {
                break;
            }
        }
        if (range[0] <= spec.tile.begin && spec.tile.begin < range[1]) {
            return tile->second;
        }
    }
    return steps;
}

ZERO_COLD_INLINE void add_parameters(Manifest& manifest, FlatLayout const& layout,
                                     std::optional<std::size_t> only) {
    std::vector<StoredPlace> const places = stored_places(layout);
    for (auto const& spec : layout.parameters()) {
        if (spec.tile.is_later()) {
            continue;
        }
        ManifestParameter parameter;
        parameter.name = stored_name(spec);
        for (std::size_t const size : stored_shape(spec)) {
            parameter.shape.push_back(size);
        }
        parameter.type = spec.type;
        parameter.group = spec.group;
        parameter.trainable = spec.trainable;
        manifest.parameters.push_back(std::move(parameter));
    }
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (std::size_t rank = only.value_or(0); rank < (only ? *only + 1 : layout.world());
             ++rank) {
            layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& piece) {
                StoredPlace const& place = places[piece.parameter];
                std::size_t const begin = place.begin + piece.parameter_begin;
                manifest.parameters[place.parameter].intervals.push_back(
                    {rank, begin, begin + piece.elements});
            });
        }
    }
    for (ManifestParameter& parameter : manifest.parameters) {
        if (!only && parameter.intervals.empty() && parameter.elements() != 0) {
            // frozen, in an adopted block: in no bucket, and the same on every rank; rank 0 saves
            // it
            parameter.intervals.push_back({0, 0, parameter.elements()});
        }
        std::sort(
            parameter.intervals.begin(), parameter.intervals.end(),
            [](ManifestInterval const& a, ManifestInterval const& b) { return a.begin < b.begin; });
    }
}

ZERO_COLD_INLINE std::vector<PlannedTensor> plan_file(Manifest const& manifest,
                                                      std::uint64_t file) {
    std::vector<PlannedTensor> tensors;
    for (std::size_t type = 0; type < manifest.types.size(); ++type) {
        for (std::size_t array = 0; array < manifest.types[type].size(); ++array) {
            ManifestArray const& form = manifest.types[type][array];
            for (std::size_t index = 0; index < manifest.parameters.size(); ++index) {
                ManifestParameter const& parameter = manifest.parameters[index];
                if (parameter.type != type || (!parameter.trainable && !form.has_frozen)) {
                    continue;
                }
                for (ManifestInterval const& interval : parameter.intervals) {
                    if (interval.file == file) {
                        std::uint64_t const items =
                            (interval.end - interval.begin + form.item_elements - 1)
                            / form.item_elements;
                        tensors.push_back(
                            {array, index, interval, items * item_bytes_of(form.dtype)});
                    }
                }
            }
        }
    }
    return tensors;
}

ZERO_COLD_INLINE std::string
add_extra_arrays(Manifest& manifest, std::map<std::string, ExtraArray> const& arrays, Hash& hash) {
    for (auto const& [name, array] : arrays) {
        if (name.starts_with(errors_prefix)) {
            return text({"the array '", name,
                         "' of SaveOptions::arrays has a name of the library's "
                         "own; give it another name"});
        }
        ManifestExtraArray added{name, array.dtype, array.shape, array.is_by_rows, {}};
        std::uint64_t const item = tensor_bytes({"", array.dtype, {}});
        if (item == std::numeric_limits<std::uint64_t>::max()) {
            return text({"the array '", name, "' of SaveOptions::arrays has type '", array.dtype,
                         "'; give one of safetensors, such as F32, I64 or U8"});
        }
        if (added.shape.empty()) {
            added.shape.push_back(array.data.size() / item);
        }
        if (std::uint64_t const bytes = tensor_bytes({"", added.dtype, added.shape});
            bytes != array.data.size()) {
            return text({"the array '", name, "' of SaveOptions::arrays has ", array.data.size(),
                         " bytes, and one of its type and shape has ", bytes});
        }
        hash.add(std::string_view(name)).add(array.is_by_rows ? 1U : 0U);
        if (array.is_by_rows) {
            hash.add(std::string_view(array.dtype)).add(added.shape.size());
            for (std::size_t axis = 1; axis < added.shape.size(); ++axis) {
                hash.add(added.shape[axis]);
            }
        }
        added.intervals.push_back({0, 0, added.rows()});
        manifest.arrays.push_back(std::move(added));
    }
    return {};
}

ZERO_COLD_INLINE std::uint64_t errors_hash(FlatLayout const& layout, std::string_view feedback) {
    Hash hash;
    hash.add(feedback);
    for (ParameterSpec const& spec : layout.parameters()) {
        if (spec.trainable && spec.elements != 0) {
            hash.add(std::string_view(spec.name)).add(spec.elements).add(spec.type);
        }
    }
    return hash.value();
}

ZERO_COLD_INLINE ManifestExtraArray errors_array(HeldArray const& errors) {
    std::uint64_t items = 0;
    for (HeldSlice const& slice : errors.slices) {
        items += errors.bytes(slice.elements) / errors.form.item_bytes;
    }
    ManifestExtraArray array{
        text({errors_prefix, errors.type}), "F32", {items}, true, {{0, 0, items}}};
    if (errors.form.item_elements != 1) {
        array.dtype = "U8";
        array.shape.push_back(errors.form.item_bytes);
    }
    return array;
}

ZERO_COLD_INLINE Range rows_of_rank(ManifestExtraArray const& array, std::size_t rank,
                                    std::size_t world) {
    auto const rows = static_cast<std::size_t>(array.rows());
    if (!array.is_by_rows) {
        return {0, rows};
    }
    if (array.intervals.size() == world) {
        return {static_cast<std::size_t>(array.intervals[rank].begin),
                static_cast<std::size_t>(array.intervals[rank].end)};
    }
    auto const cut = [&](std::size_t before) {
        return rows / world * before + smaller(rows % world, before);
    };
    return {cut(rank), cut(rank + 1)};
}

ZERO_COLD_INLINE TensorEntry entry_of(ManifestExtraArray const& array,
                                      ManifestInterval const& interval) {
    ManifestParameter rows;
    rows.name = array.name;
    rows.shape = {array.rows()};
    TensorEntry entry{tensor_name({"extras", array.dtype}, rows, interval), array.dtype,
                      array.shape};
    entry.shape[0] = interval.end - interval.begin;
    return entry;
}

ZERO_COLD_INLINE TensorEntry entry_of(Manifest const& manifest, PlannedTensor const& tensor) {
    ManifestParameter const& parameter = manifest.parameters[tensor.parameter];
    ManifestArray const& array = manifest.types[parameter.type][tensor.array];
    TensorEntry entry;
    entry.name = tensor_name(array, parameter, tensor.interval);
    entry.dtype = array.dtype;
    bool const is_whole = tensor.interval.begin == 0 && tensor.interval.end == parameter.elements();
    entry.shape = is_whole && array.item_elements == 1
                      ? parameter.shape
                      : std::vector<std::uint64_t>{tensor.bytes / item_bytes_of(array.dtype)};
    return entry;
}

} // namespace ZERO_NAMESPACE::detail
