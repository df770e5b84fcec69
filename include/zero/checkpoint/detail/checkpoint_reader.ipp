#pragma once

#include "../checkpoint_reader.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../core/hash.hpp"
#include "../../core/split_float.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../checkpoint_error.hpp"
#include "plan_manifest.hpp"
#include "safetensors_header.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

/// Returns the indices of parameters in the order of their names.
ZERO_COLD_INLINE std::vector<std::size_t>
sorted_by_name(std::vector<ManifestParameter> const& parameters) {
    std::vector<std::size_t> sorted(parameters.size());
    std::iota(sorted.begin(), sorted.end(), std::size_t{0});
    std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
        return parameters[a].name < parameters[b].name;
    });
    return sorted;
}

ZERO_COLD_INLINE std::optional<std::size_t>
find_by_name(std::vector<ManifestParameter> const& parameters,
             std::vector<std::size_t> const& sorted, std::string_view name) {
    auto const found = std::lower_bound(sorted.begin(), sorted.end(), name,
                                        [&](std::size_t index, std::string_view wanted) {
                                            return parameters[index].name < wanted;
                                        });
    return found == sorted.end() || parameters[*found].name != name ? std::nullopt
                                                                    : std::optional(*found);
}

/// Calls `visit(interval, begin, end)` for the parts of a range, cut at multiples of `state_chunk`
/// elements in their interval.
/// @throws CheckpointError if the reader was given no interval of some of them
template <class Visitor>
void for_stored_chunks(ManifestParameter const& parameter, std::uint64_t begin, std::uint64_t end,
                       Visitor const& visit) {
    std::uint64_t missing = end - begin;
    for (ManifestInterval const& interval : parameter.intervals) {
        std::uint64_t at = larger(begin, interval.begin);
        std::uint64_t const stop = smaller(end, interval.end);
        missing -= at < stop ? stop - at : 0;
        while (at < stop) {
            std::uint64_t const into = (at - interval.begin) % state_chunk;
            std::uint64_t const next = smaller(stop, at + state_chunk - into);
            visit(interval, at, next);
            at = next;
        }
    }
    if (missing != 0) {
        throw_error<CheckpointError>({"zero: ", missing, " of the elements [", begin, ":", end,
                                      "] of parameter '", parameter.name,
                                      "' lie in no interval of the manifest that this reader was "
                                      "given."});
    }
}

} // namespace detail

ZERO_COLD_INLINE CheckpointReader::CheckpointReader(std::filesystem::path const& checkpoint)
    : CheckpointReader(checkpoint, Manifest::read(checkpoint)) {}

ZERO_COLD_INLINE CheckpointReader::CheckpointReader(std::filesystem::path checkpoint,
                                                    Manifest manifest,
                                                    std::function<detail::File(std::size_t)> open)
    : _checkpoint(std::move(checkpoint)), _manifest(std::move(manifest)),
      _open_file(std::move(open)), _by_name(detail::sorted_by_name(_manifest.parameters)),
      _base_by_name(detail::sorted_by_name(_manifest.base)), _files(_manifest.files.size()) {}

ZERO_COLD_INLINE CheckpointReader CheckpointReader::of_file(std::filesystem::path const& file,
                                                            TensorRules const& rules) {
    detail::ModelFiles const model = detail::ModelFiles::at(file);
    Manifest manifest;
    std::vector<std::unique_ptr<SafetensorsReader>> files;
    std::vector<FileTensor> tensors;
    std::vector<TensorEntry const*> entries;
    for (std::filesystem::path const& path : model.files) {
        manifest.files.push_back({path.filename().string(), 0});
        SafetensorsReader& opened = *files.emplace_back(std::make_unique<SafetensorsReader>(path));
        opened.close();
        for (TensorEntry const& tensor : opened.tensors()) {
            if (!detail::holds_checksums(tensor.name)) {
                tensors.push_back({files.size() - 1, &tensor});
                entries.push_back(&tensor);
            }
        }
    }
    model.require_tensors(files);
    detail::TensorViews views = detail::apply_rules(rules, entries);
    std::vector<std::string> dtypes; // one parameter type each
    for (detail::TensorView const& view : views.parameters) {
        auto const found = std::find(dtypes.begin(), dtypes.end(), view.dtype);
        ManifestParameter parameter;
        parameter.name = view.name;
        parameter.shape = view.shape;
        parameter.type = static_cast<std::size_t>(found - dtypes.begin());
        if (found == dtypes.end()) {
            dtypes.push_back(view.dtype);
            manifest.types.push_back({{"parameter", view.dtype, 1, true}});
        }
        if (std::uint64_t const elements = parameter.elements(); elements != 0) {
            parameter.intervals.push_back({0, 0, elements});
        }
        manifest.parameters.push_back(std::move(parameter));
    }
    CheckpointReader reader(file, std::move(manifest));
    reader._is_file = true;
    reader._files = std::move(files);
    reader._tensors = std::move(tensors);
    reader._views = std::move(views.parameters);
    reader._problems = std::move(views.problems);
    reader._left_over = std::move(views.left_over);
    reader._unmatched = std::move(views.unmatched);
    return reader;
}

ZERO_COLD_INLINE std::optional<std::size_t> CheckpointReader::find(std::string_view name,
                                                                   std::size_t hint) const {
    for (std::size_t const near : {hint, hint + 1}) {
        if (near < _manifest.parameters.size() && _manifest.parameters[near].name == name) {
            return near;
        }
    }
    return detail::find_by_name(_manifest.parameters, _by_name, name);
}

ZERO_COLD_INLINE ManifestParameter const* CheckpointReader::find_base(std::string_view name) const {
    auto const found = detail::find_by_name(_manifest.base, _base_by_name, name);
    return found ? &_manifest.base[*found] : nullptr;
}

ZERO_COLD_INLINE std::optional<std::size_t>
CheckpointReader::find_array(std::size_t parameter, std::string_view name) const {
    ManifestParameter const& of = _manifest.parameters[parameter];
    auto const& arrays = _manifest.types[of.type];
    for (std::size_t array = 0; array < arrays.size(); ++array) {
        if (arrays[array].name == name && (of.trainable || arrays[array].has_frozen)) {
            return array;
        }
    }
    return std::nullopt;
}

ZERO_COLD_INLINE ManifestArray const& CheckpointReader::array_of(std::size_t parameter,
                                                                 std::size_t array) const {
    return _manifest.types[_manifest.parameters[parameter].type][array];
}

ZERO_COLD_INLINE std::uint64_t CheckpointReader::item_bytes(std::size_t parameter,
                                                            std::size_t array) const {
    return detail::item_bytes_of(array_of(parameter, array).dtype);
}

ZERO_COLD_INLINE std::size_t CheckpointReader::preferred_elements(std::size_t parameter) const {
    constexpr std::size_t elements = std::size_t{1} << 20U; // then columns are read in long runs
    constexpr std::size_t rows = 16;
    if (!_is_file || _views[parameter].blocks.empty()
        || !_views[parameter].blocks.front().is_transposed) {
        return 1;
    }
    return detail::larger(elements, rows * _views[parameter].columns);
}

ZERO_COLD_INLINE std::uint64_t CheckpointReader::places_hash() const {
    Hash hash;
    for (detail::TensorView const& view : _views) {
        hash.add(view.name).add(view.dtype).add(view.shape.size());
        for (std::uint64_t const size : view.shape) {
            hash.add(size);
        }
        for (detail::TensorBlock const& block : view.blocks) {
            TensorEntry const& tensor = *_tensors[block.tensor].entry;
            hash.add(tensor.name)
                .add(tensor.end - tensor.begin)
                .add(block.rows.begin)
                .add(block.columns.begin)
                .add(block.first)
                .add(block.stride)
                .add(block.is_transposed ? 1U : 0U);
        }
    }
    return _is_file ? hash.value() : 0;
}

/// Returns a file that is read next, and closes the one that was read longest ago.
ZERO_COLD_INLINE SafetensorsReader& CheckpointReader::opened(std::size_t number) {
    auto& opened = _files[number];
    if (_open.empty() || _open.back() != number) {
        std::erase(_open, number);
        if (_open.size() == most_open) {
            _files[_open.front()]->close();
            _open.erase(_open.begin());
        }
    }
    if (!opened) {
        ManifestFile const& file = _manifest.files[number];
        auto const path = _checkpoint / file.name;
        if (std::error_code error;
            !_open_file && !file.host.empty() && !std::filesystem::exists(path, error)) {
            detail::throw_error<CheckpointError>(
                {"zero: '", _checkpoint.string(), "' lacks ", detail::named_with_host(file),
                 "; LoadOptions::own_disks reads it from the disk of any rank that has it, and "
                 "otherwise copy it there."});
        }
        opened = std::make_unique<SafetensorsReader>(
            _open_file ? _open_file(number) : detail::File::open(path), file.checksum);
    }
    if (_open.empty() || _open.back() != number) {
        _open.push_back(number);
    }
    return *opened;
}

ZERO_COLD_INLINE TensorEntry const& CheckpointReader::tensor(std::size_t parameter,
                                                             std::size_t array,
                                                             ManifestInterval const& interval,
                                                             SafetensorsReader*& reader) {
    ManifestFile const& file = _manifest.files[static_cast<std::size_t>(interval.file)];
    reader = &opened(static_cast<std::size_t>(interval.file));
    ManifestArray const& form = array_of(parameter, array);
    std::string const name = tensor_name(form, _manifest.parameters[parameter], interval);
    TensorEntry const* const found = reader->find_next(name);
    std::uint64_t const items =
        (interval.end - interval.begin + form.item_elements - 1) / form.item_elements;
    if (found == nullptr || found->dtype != form.dtype
        || found->end - found->begin != items * detail::item_bytes_of(form.dtype)) {
        detail::throw_error<CheckpointError>({"zero: '", file.name, "' of the checkpoint '",
                                              _checkpoint.string(), "' has no tensor '", name,
                                              "' of the type and size that the manifest names."});
    }
    return *found;
}

/// Calls `visit(reader, tensor, offset in the tensor, bytes, place, distance)` for consecutive
/// bytes of tensors. `place` and `distance` are those of `TensorView::for_runs`, in bytes.
/// @param offset, bytes whole items of a parameter that is no checkpoint's
template <class Visitor>
void CheckpointReader::for_runs(std::size_t parameter, std::uint64_t offset, std::uint64_t bytes,
                                Visitor const& visit) {
    detail::TensorView const& view = _views[parameter];
    std::uint64_t const elements = _manifest.parameters[parameter].elements();
    std::uint64_t const item = detail::item_bytes_of(view.dtype);
    if (item == 0 || offset / item > elements || bytes / item > elements - offset / item) {
        detail::throw_error<CheckpointError>({"zero: ", bytes, " bytes at ", offset,
                                              " lie outside of parameter '", view.name, "' of '",
                                              _checkpoint.string(), "', which has ", elements,
                                              " elements of type ", view.dtype, "."});
    }
    view.for_runs({static_cast<std::size_t>(offset / item),
                   static_cast<std::size_t>((offset + bytes) / item)},
                  [&](detail::TensorBlock const& block, std::size_t first, std::size_t count,
                      std::size_t place, std::size_t distance) {
                      FileTensor const& from = _tensors[block.tensor];
                      visit(opened(from.file), *from.entry, first * item, count * item,
                            static_cast<std::size_t>(place * item),
                            static_cast<std::size_t>(distance * item));
                  });
}

ZERO_COLD_INLINE void CheckpointReader::read_items(std::size_t parameter, std::size_t array,
                                                   ManifestInterval const& interval,
                                                   std::uint64_t offset,
                                                   std::span<std::byte> into) {
    std::lock_guard const lock(*_reading);
    if (_is_file) {
        auto const item = static_cast<std::size_t>(item_bytes(parameter, array));
        detail::ItemBytes column; // a part of it
        for_runs(parameter, offset, into.size(),
                 [&](SafetensorsReader& file, TensorEntry const& entry, std::uint64_t from,
                     std::uint64_t bytes, std::size_t place, std::size_t distance) {
                     if (distance == item) {
                         file.read(entry, from,
                                   into.subspan(place, static_cast<std::size_t>(bytes)));
                         return;
                     }
                     for (std::uint64_t done = 0; done < bytes;) {
                         auto const part = static_cast<std::size_t>(
                             detail::smaller<std::uint64_t>(column.size(), bytes - done));
                         file.read(entry, from + done, {column.data(), part});
                         for (std::size_t at = 0; at < part; at += item) {
                             std::memcpy(into.data() + place, column.data() + at, item);
                             place += distance;
                         }
                         done += part;
                     }
                 });
        return;
    }
    SafetensorsReader* reader = nullptr;
    TensorEntry const& entry = tensor(parameter, array, interval, reader);
    reader->read(entry, offset, into);
}

ZERO_COLD_INLINE void CheckpointReader::verify_items(std::size_t parameter, std::size_t array,
                                                     ManifestInterval const& interval,
                                                     std::uint64_t offset, std::uint64_t bytes) {
    std::lock_guard const lock(*_reading);
    if (_is_file) {
        for_runs(parameter, offset, bytes,
                 [](SafetensorsReader& file, TensorEntry const& entry, std::uint64_t from,
                    std::uint64_t count, std::size_t,
                    std::size_t) { file.verify(entry, from, count); });
        return;
    }
    SafetensorsReader* reader = nullptr;
    TensorEntry const& entry = tensor(parameter, array, interval, reader);
    reader->verify(entry, offset, bytes);
}

ZERO_COLD_INLINE ExtraArray CheckpointReader::read_rows(ManifestExtraArray const& array,
                                                        std::uint64_t begin, std::uint64_t end) {
    std::lock_guard const lock(*_reading);
    ExtraArray rows;
    rows.dtype = array.dtype;
    rows.is_by_rows = array.is_by_rows;
    rows.shape = array.shape;
    rows.shape[0] = end - begin;
    rows.data.resize(static_cast<std::size_t>(detail::tensor_bytes({"", rows.dtype, rows.shape})));
    auto const row = begin == end ? 0 : rows.data.size() / static_cast<std::size_t>(end - begin);
    for (ManifestInterval const& interval : array.intervals) {
        std::uint64_t const from = detail::larger(begin, interval.begin);
        std::uint64_t const to = detail::smaller(end, interval.end);
        if (from >= to) {
            continue;
        }
        TensorEntry const expected = detail::entry_of(array, interval);
        SafetensorsReader& file = opened(static_cast<std::size_t>(interval.file));
        TensorEntry const* const found = file.find(expected.name);
        if (found == nullptr || found->dtype != expected.dtype || found->shape != expected.shape) {
            detail::throw_error<CheckpointError>(
                {"zero: the checkpoint '", _checkpoint.string(), "' has no tensor '", expected.name,
                 "' of the type and shape that the manifest names; load another one "
                 "(LoadOptions::name)."});
        }
        file.read(*found, (from - interval.begin) * row,
                  std::span(rows.data).subspan(static_cast<std::size_t>(from - begin) * row,
                                               static_cast<std::size_t>(to - from) * row));
    }
    return rows;
}

ZERO_COLD_INLINE std::uint64_t CheckpointReader::bytes_read() const noexcept {
    std::lock_guard const lock(*_reading);
    std::uint64_t bytes = 0;
    for (auto const& file : _files) {
        bytes += file ? file->bytes_read() : 0;
    }
    return bytes;
}

ZERO_COLD_INLINE void CheckpointReader::read_weights(std::size_t parameter, std::uint64_t begin,
                                                     std::span<float> values, bool is_rounded) {
    auto const masters = find_array(parameter, "master");
    auto const remainders = find_array(parameter, "remainder");
    auto const bits = find_array(parameter, "rounded_up");
    auto const halves = find_array(parameter, "parameter");
    if (is_rounded || masters || !remainders || !bits || !halves) {
        read_values(parameter, !is_rounded && masters ? "master" : "parameter", begin, values);
        return;
    }
    detail::ItemBytes half{};
    detail::ItemBytes remainder{};
    detail::ItemBytes bit{};
    auto const& stored = _manifest.parameters[parameter];
    detail::for_stored_chunks(
        stored, begin, begin + values.size(),
        [&](ManifestInterval const& interval, std::uint64_t at, std::uint64_t end) {
            auto const count = static_cast<std::size_t>(end - at);
            std::uint64_t const into = at - interval.begin;
            read_items(parameter, *halves, interval, into * 2, {half.data(), count * 2});
            read_items(parameter, *remainders, interval, into * 2, {remainder.data(), count * 2});
            std::uint64_t const first = into / 8;
            read_items(parameter, *bits, interval, first,
                       {bit.data(), static_cast<std::size_t>((into + count + 7) / 8 - first)});
            for (std::size_t i = 0; i < count; ++i) {
                std::size_t const number = static_cast<std::size_t>(into % 8) + i;
                bool const is_up =
                    (std::to_integer<unsigned>(bit[number / 8]) >> number % 8 & 1U) != 0;
                values[static_cast<std::size_t>(at - begin) + i] =
                    join({detail::item_at<bfloat16>(half.data(), i),
                          detail::item_at<std::uint16_t>(remainder.data(), i), is_up});
            }
        });
}

ZERO_COLD_INLINE void CheckpointReader::read_values(std::size_t parameter, std::string_view array,
                                                    std::uint64_t begin, std::span<float> values) {
    auto const found = find_array(parameter, array);
    auto const scales = find_array(parameter, std::string(array) + ".scale");
    auto const dtype =
        found ? detail::number_dtype(array_of(parameter, *found).dtype, scales.has_value())
              : std::nullopt;
    if (found && !dtype) {
        detail::throw_error<CheckpointError>(
            {"zero: '", array, "' of '", _manifest.parameters[parameter].name, "' in '",
             _checkpoint.string(), "' is stored as ", array_of(parameter, *found).dtype,
             ", and values are read from F32, BF16 and F16; convert it."});
    }
    if (!dtype || array_of(parameter, *found).item_elements != 1) {
        detail::throw_error<CheckpointError>({"zero: the checkpoint '", _checkpoint.string(),
                                              "' has no numbers '", array, "' of parameter '",
                                              _manifest.parameters[parameter].name, "'."});
    }
    std::size_t const bytes = size_of(*dtype);
    if (_is_file) { // converted in place, from the end of the memory
        auto const items =
            std::as_writable_bytes(values).subspan(values.size() * (sizeof(float) - bytes));
        read_items(parameter, *found, {}, begin * bytes, items);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = detail::decode_item(*dtype, items.data(), i);
        }
        return;
    }
    detail::ItemBytes items{};
    detail::ItemBytes scale{};
    detail::for_stored_chunks(
        _manifest.parameters[parameter], begin, begin + values.size(),
        [&](ManifestInterval const& interval, std::uint64_t at, std::uint64_t end) {
            auto const count = static_cast<std::size_t>(end - at);
            std::uint64_t const into = at - interval.begin;
            read_items(parameter, *found, interval, into * bytes, {items.data(), count * bytes});
            std::uint64_t const block =
                scales ? array_of(parameter, *scales).item_elements : std::uint64_t{1};
            std::uint64_t const first = into / block;
            if (scales) {
                read_items(
                    parameter, *scales, interval, first * sizeof(float),
                    {scale.data(), static_cast<std::size_t>(((into + count - 1) / block + 1 - first)
                                                            * sizeof(float))});
            }
            for (std::size_t i = 0; i < count; ++i) {
                float& value = values[static_cast<std::size_t>(at - begin) + i];
                if (scales) {
                    value = detail::decode_state(
                        *dtype, items.data(), i,
                        detail::item_at<float>(
                            scale.data(), static_cast<std::size_t>((into + i) / block - first)));
                } else {
                    value = detail::decode_item(*dtype, items.data(), i);
                }
            }
        });
}

ZERO_COLD_INLINE void CheckpointReader::read_parameter(std::string_view name, std::uint64_t begin,
                                                       std::span<float> values) {
    auto const parameter = find(name);
    if (!parameter || begin + values.size() > _manifest.parameters[*parameter].elements()) {
        detail::throw_error<CheckpointError>(
            {"zero: '", _checkpoint.string(), "' has no parameter '", name, "' of at least ",
             begin + values.size(), " elements.", detail::listed(_problems)});
    }
    read_values(*parameter, "parameter", begin, values);
}

} // namespace ZERO_NAMESPACE
