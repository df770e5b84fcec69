#pragma once

#include "base_parameters.hpp"

#include "../../core/convert.hpp"
#include "../../core/dtype.hpp"
#include "../../core/hash.hpp"
#include "../../core/storage_types.hpp"
#include "../../layout/piece.hpp"
#include "../tensor_rules.hpp"

#include <bit>
#include <map>
#include <span>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::string keep_only(Manifest& manifest, SaveOptions const& options,
                                       std::vector<std::size_t>& first) {
    SavedParameters const& only = options.only;
    if (!only.trainable && only.names.empty()) {
        return options.base.empty()
                   ? std::string()
                   : text({"SaveOptions::base is '", options.base,
                           "', and the checkpoint holds every parameter; set SaveOptions::only to "
                           "leave the base out"});
    }
    manifest.base_name = options.base;
    std::vector<char> is_used(only.names.size(), 0);
    std::vector<std::string> texts;
    std::size_t kept = 0;
    for (std::size_t index = 0; index < manifest.parameters.size(); ++index) {
        ManifestParameter& parameter = manifest.parameters[index];
        bool is_saved = only.trainable && parameter.trainable;
        for (std::size_t name = 0; name < only.names.size(); ++name) {
            if (matches(only.names[name], parameter.name, texts)) {
                texts.clear();
                is_used[name] = 1;
                is_saved = true;
            }
        }
        if (is_saved) {
            first[kept] = first[index];
            if (kept != index) {
                manifest.parameters[kept] = std::move(parameter);
            }
            ++kept;
        } else if (!parameter.trainable) {
            manifest.base.push_back(std::move(parameter));
        }
    }
    manifest.parameters.resize(kept);
    first.resize(kept);
    for (std::size_t name = 0; name < only.names.size(); ++name) {
        if (is_used[name] == 0) {
            return text({"SaveOptions::only names '", only.names[name],
                         "', which is no parameter of the model; give the names of registrations, "
                         "in which '*' stands for at least one character"});
        }
    }
    return kept != 0 ? std::string()
                     : "SaveOptions::only selects the trainable parameters, and none is trainable; "
                       "name those that the checkpoint must hold";
}

ZERO_COLD_INLINE std::uint64_t names_hash(std::vector<ManifestParameter> const& parameters) {
    Hash hash;
    for (ManifestParameter const& parameter : parameters) {
        hash.add(std::string_view(parameter.name));
    }
    return hash.value();
}

/// Returns the sum of a hash of each value and its place. It changes with any value, and if two
/// values change places.
template <class T>
std::uint64_t sum_of_hashes(std::byte const* items, std::size_t count, std::uint64_t place) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t mixed = (place + i + 1) * 0x9e3779b97f4a7c15U
                              + std::bit_cast<std::uint32_t>(to_float(item_at<T>(items, i)));
        mixed = (mixed ^ mixed >> 32U) * 0xff51afd7ed558ccdU;
        sum += mixed ^ mixed >> 32U;
    }
    return sum;
}

ZERO_COLD_INLINE std::uint64_t sum_of_hashes(DType dtype, std::byte const* items, std::size_t count,
                                             std::uint64_t place) {
    switch (dtype) {
    case DType::float32: return sum_of_hashes<float>(items, count, place);
    case DType::bfloat16: return sum_of_hashes<bfloat16>(items, count, place);
    default: return sum_of_hashes<float16>(items, count, place);
    }
}

ZERO_COLD_INLINE std::vector<std::uint64_t>
own_value_hashes(FlatLayout const& layout, StateTable const& table,
                 std::vector<ManifestParameter> const& parameters, std::uint64_t file,
                 Staging const& staging) {
    std::map<std::string_view, std::size_t> tiles; // the first one of each parameter
    for (std::size_t index = 0; index < layout.parameters().size(); ++index) {
        tiles.emplace(stored_name(layout.parameter(index)), index);
    }
    std::vector<std::uint64_t> hashes;
    for (ManifestParameter const& parameter : parameters) {
        std::uint64_t hash = 0;
        auto const add = [&](HeldSlice const& slice, std::size_t first, ArrayForm const& form,
                             Range common) {
            std::size_t const most = form.codec != nullptr       ? state_chunk
                                     : staging.buffer == nullptr ? common.size()
                                                                 : piece_bytes / form.item_bytes;
            for (std::size_t begin = common.begin; begin < common.end; begin += most) {
                std::size_t const count = smaller(most, common.end - begin);
                if (form.codec != nullptr) {
                    std::vector<float> values(count);
                    table.load(ArrayKind::parameter, 0, slice.parameter,
                               {begin - first, begin - first + count}, staging.copy, values.data());
                    hash +=
                        sum_of_hashes<float>(std::as_bytes(std::span(values)).data(), count, begin);
                    continue;
                }
                auto const* items = static_cast<std::byte const*>(slice.data)
                                    + form.bytes(begin - first - slice.begin);
                if (staging.buffer != nullptr) {
                    staging.copy(staging.buffer, items, form.bytes(count));
                    items = staging.buffer;
                }
                hash += sum_of_hashes(form.dtype, items, count, begin);
            }
        };
        std::size_t index = tiles.at(parameter.name);
        for (; index < layout.parameters().size(); ++index) {
            auto const& spec = layout.parameter(index);
            if (stored_name(spec) != parameter.name) {
                break;
            }
            std::size_t const array = table.array_of(ArrayKind::parameter, 0, index);
            for (HeldSlice const& slice : table.slices(array, index)) {
                std::size_t const begin = spec.tile.begin + slice.begin;
                for (ManifestInterval const& interval : parameter.intervals) {
                    Range const common = intersection({begin, begin + slice.elements},
                                                      {static_cast<std::size_t>(interval.begin),
                                                       static_cast<std::size_t>(interval.end)});
                    if (interval.file == file && !common.is_empty()) {
                        add(slice, spec.tile.begin, table.arrays()[array].form, common);
                    }
                }
            }
        }
        hashes.push_back(hash);
    }
    return hashes;
}

} // namespace ZERO_NAMESPACE::detail
