#pragma once

#include "load_plan.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../layout/detail/partition/shape.hpp"
#include "../../layout/piece.hpp"
#include "../checkpoint_error.hpp"
#include "plan_manifest.hpp"

#include <algorithm>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// Elements that are converted at a time; a multiple of every `item_elements`.
inline constexpr std::size_t load_chunk = std::size_t{1} << 16U;

ZERO_COLD_INLINE LoadPlan::LoadPlan(FlatLayout const& layout, StateTable const& table,
                                    std::vector<std::string> const& names,
                                    std::string const& optimizer, CheckpointReader& checkpoint,
                                    LoadOptions const& options, std::optional<std::size_t> average)
    : _layout(&layout), _table(&table), _names(&names), _checkpoint(&checkpoint), _options(options),
      _average(average) {
    std::vector<std::string> problems(checkpoint.problems().begin(), checkpoint.problems().end());
    _lacks_states.resize(layout.parameters().size(), 0);
    if (options.scope == LoadScope::everything && checkpoint.manifest().optimizer != optimizer) {
        _differences.push_back(
            text({"the checkpoint was made with the optimizer ", checkpoint.manifest().optimizer,
                  " and not with ", optimizer}));
    }
    std::vector<char> is_used(checkpoint.manifest().parameters.size(), 0);
    std::vector<char> is_held(checkpoint.manifest().base.size(), 0);
    std::size_t last = 0; // most are in the same order
    for (std::size_t parameter = 0; parameter < layout.parameters().size(); ++parameter) {
        std::string const& name = stored_name(layout.parameter(parameter));
        auto const stored = checkpoint.find(name, last);
        add(parameter, stored, problems);
        if (stored) {
            is_used[*stored] = 1;
            last = *stored;
        } else if (auto const* const base = checkpoint.find_base(name)) {
            is_held[static_cast<std::size_t>(base - checkpoint.manifest().base.data())] = 1;
        }
    }
    for (std::size_t stored = 0; stored < is_used.size(); ++stored) {
        if (is_used[stored] == 0) {
            auto const& left = checkpoint.manifest().parameters[stored];
            _left_over.push_back(
                text({"the model has no parameter '", left.name, "' of the checkpoint, shape ",
                      shape_text({left.shape.begin(), left.shape.end()})}));
        }
    }
    for (std::size_t index = 0; index < is_held.size(); ++index) {
        if (is_held[index] == 0) {
            auto const& left = checkpoint.manifest().base[index];
            _left_over.push_back(
                text({"the model has no parameter '", left.name, "' of the base, shape ",
                      shape_text({left.shape.begin(), left.shape.end()})}));
        }
    }
    _left_over.insert(_left_over.end(), checkpoint.left_over().begin(),
                      checkpoint.left_over().end());
    refuse(std::move(problems));
    // In the order of the files, where small tensors of one array share blocks.
    std::stable_sort(_items.begin(), _items.end(),
                     [](Item const& a, Item const& b) { return a.stored_array < b.stored_array; });
}

/// @param problems problems that no option accepts
ZERO_COLD_INLINE void LoadPlan::refuse(std::vector<std::string> problems) const {
    std::string remedy;
    std::string list;
    if (!_options.may_differ && !(_differences.empty() && _left_over.empty())) {
        list += listed(_differences) + listed(_left_over) + listed(_checkpoint->unmatched());
        if (_options.scope == LoadScope::parameters) {
            remedy += "\nLoadOptions::rules give tensors other names; one without a parameter "
                      "leaves tensors out.";
        }
        remedy += "\nLoadOptions::may_differ accepts arrays that are missing, whose values stay, "
                  "or additional, and another optimizer.";
    }
    if (!_roundings.empty()) {
        list += listed(_roundings);
        remedy += "\nLoadOptions::may_round accepts values that are rounded.";
    }
    list += listed(problems);
    if (list.empty()) {
        return;
    }
    throw_error<CheckpointError>({"zero: the checkpoint '", _checkpoint->path().string(),
                                  "' does not fit this engine:", list, remedy});
}

ZERO_COLD_INLINE void LoadPlan::add(std::size_t parameter, std::optional<std::size_t> found,
                                    std::vector<std::string>& problems) {
    auto const& spec = _layout->parameter(parameter);
    auto const* const base = _checkpoint->find_base(stored_name(spec));
    if (!found) {
        bool const needs_states = spec.trainable && spec.elements != 0
                                  && _table->find(spec.type, ArrayKind::state) != _names->size();
        _lacks_states[parameter] = needs_states;
        if (spec.tile.is_later()) {
            return;
        }
        if (base == nullptr) {
            _differences.push_back(text({"the checkpoint has no parameter '", stored_name(spec),
                                         "', shape ", shape_text(stored_shape(spec))}));
            return;
        }
        if (needs_states && _options.scope == LoadScope::everything) {
            (_options.may_thaw ? _accepted : _differences)
                .push_back(text({"parameter '", stored_name(spec),
                                 "' is trainable and was frozen, so that the checkpoint has "
                                 "neither its values nor its states (LoadOptions::may_thaw)"}));
        }
    }
    auto const& stored = found ? _checkpoint->manifest().parameters[*found] : *base;
    std::vector<std::size_t> const shape(stored.shape.begin(), stored.shape.end());
    std::vector<std::size_t> const own = stored_shape(spec);
    bool const is_flat = shape.size() == 1 || own.size() == 1; // one of them has no shape
    if (stored.elements() != product_of(own) || (!is_flat && shape != own)) {
        problems.push_back(
            text({"parameter '", stored_name(spec), "' has ", product_of(own), " elements",
                  (own.size() == 1 ? "" : ", shape " + shape_text(own)), "; in the checkpoint ",
                  stored.elements(), ", shape ", shape_text(shape)}));
        return;
    }
    if (spec.elements == 0 || !found) { // values of the base are compared later
        return;
    }
    add_weights(parameter, *found, problems);
    if (_options.scope == LoadScope::everything && spec.trainable) {
        add_states(parameter, *found, problems);
    } else if (_options.scope == LoadScope::everything && stored.trainable
               && !spec.tile.is_later()) {
        add_dropped(parameter, *found);
    }
}

/// Lists the states of a parameter that is frozen now. No option has to accept them: freezing is
/// the caller's decision, and only a later unfreezing would need them.
ZERO_COLD_INLINE void LoadPlan::add_dropped(std::size_t parameter, std::size_t stored) {
    auto const& spec = _layout->parameter(parameter);
    std::string names;
    for (std::size_t array = 0; array < _names->size(); ++array) {
        HeldArray const& held = _table->arrays()[array];
        if (held.type == spec.type && held.form.kind == ArrayKind::state
            && _checkpoint->find_array(stored, (*_names)[array])) {
            names += (names.empty() ? "'" : ", '") + (*_names)[array] + "'";
        }
    }
    if (!names.empty()) {
        _accepted.push_back(text({"parameter '", stored_name(spec), "' is frozen, so its states ",
                                  names, " of the checkpoint are dropped"}));
    }
}

/// Returns whether an array of the engine is stored in the same form.
ZERO_COLD_INLINE bool LoadPlan::has_same_form(std::size_t array, std::size_t parameter,
                                              std::size_t stored) const {
    auto const found = _checkpoint->find_array(stored, (*_names)[array]);
    if (!found) {
        return false;
    }
    auto const& manifest = _checkpoint->manifest();
    auto const& form = manifest.types[manifest.parameters[stored].type][*found];
    ArrayForm const& own = _table->arrays()[array].form;
    if (form.dtype != dtype_text(own) || form.item_elements != own.item_elements) {
        return false;
    }
    // Groups of elements must begin at the same elements.
    for (HeldSlice const& slice : _table->slices(array, parameter)) {
        std::size_t const first = _layout->parameter(parameter).tile.begin + slice.begin;
        Range const held{first, first + slice.elements};
        for (ManifestInterval const& interval : manifest.parameters[stored].intervals) {
            Range const common = intersection(held, {static_cast<std::size_t>(interval.begin),
                                                     static_cast<std::size_t>(interval.end)});
            if (!common.is_empty()
                && ((common.begin - interval.begin) % own.item_elements != 0
                    || (common.begin - held.begin) % own.item_elements != 0
                    || (common.end != held.end
                        && (common.end - held.begin) % own.item_elements != 0))) {
                return false;
            }
        }
    }
    return true;
}

/// Adds arrays item by item, if all of them are stored in the engine's form.
ZERO_COLD_INLINE bool LoadPlan::add_raw(std::vector<std::size_t> const& arrays,
                                        std::size_t parameter, std::size_t stored) {
    for (std::size_t const array : arrays) {
        if (!has_same_form(array, parameter, stored)) {
            return false;
        }
    }
    for (std::size_t const array : arrays) {
        Item item;
        item.parameter = parameter;
        item.stored = stored;
        item.begin = _layout->parameter(parameter).tile.begin;
        item.is_raw = true;
        item.array = array;
        item.stored_array = *_checkpoint->find_array(stored, (*_names)[array]);
        _items.push_back(item);
    }
    return true;
}

ZERO_COLD_INLINE std::string LoadPlan::stored_weight_dtype(std::size_t stored) const {
    auto const& manifest = _checkpoint->manifest();
    auto const& arrays = manifest.types[manifest.parameters[stored].type];
    if (_options.scope != LoadScope::parameters) {
        if (auto const master = _checkpoint->find_array(stored, "master")) {
            return arrays[*master].dtype;
        }
        if (_checkpoint->find_array(stored, "remainder")) {
            return "F32";
        }
    }
    return arrays[*_checkpoint->find_array(stored, "parameter")].dtype;
}

/// Returns the problem of items that are neither copied nor numbers that can be read.
ZERO_COLD_INLINE std::string unreadable(std::string_view what, std::string const& parameter,
                                        std::string const& dtype) {
    return text({what, " of parameter '", parameter, "' are stored as ", dtype,
                 ", and values are read from F32, BF16 and F16; convert them"});
}

ZERO_COLD_INLINE void LoadPlan::add_weights(std::size_t parameter, std::size_t stored,
                                            std::vector<std::string>& problems) {
    auto const& spec = _layout->parameter(parameter);
    std::vector<std::size_t> arrays{_table->array_of(ArrayKind::parameter, 0, parameter)};
    std::string dtype = dtype_text(_table->arrays()[arrays.front()].form);
    for (ArrayKind const kind : {ArrayKind::master, ArrayKind::remainder, ArrayKind::rounded_up}) {
        std::size_t const array = _table->find(spec.type, kind);
        if (spec.trainable && array != _table->arrays().size()) {
            arrays.push_back(array);
            dtype = kind == ArrayKind::master ? dtype_text(_table->arrays()[array].form) : "F32";
        }
    }
    bool const has_other_masters = arrays.size() == 1
                                   && (_checkpoint->find_array(stored, "master")
                                       || _checkpoint->find_array(stored, "remainder"));
    // A frozen parameter that was trained before is loaded as it was rounded.
    bool const is_rounded = _options.scope == LoadScope::parameters || !spec.trainable;
    if ((is_rounded || !has_other_masters)
        && (_options.scope != LoadScope::parameters || arrays.size() == 1)
        && add_raw(arrays, parameter, stored)) {
        return;
    }
    std::string const from = stored_weight_dtype(stored);
    if (!number_dtype(from)) {
        problems.push_back(unreadable("the weights", spec.name, from));
        return;
    }
    if (dtype != "F32" && dtype != from && !_options.may_round) {
        _roundings.push_back(text({"the weights of parameter '", spec.name, "' are stored as ",
                                   from, ", which ", dtype, " rounds"}));
    }
    Item item;
    item.parameter = parameter;
    item.stored = stored;
    item.begin = spec.tile.begin;
    _items.push_back(item);
}

ZERO_COLD_INLINE void LoadPlan::add_states(std::size_t parameter, std::size_t stored,
                                           std::vector<std::string>& problems) {
    auto const& spec = _layout->parameter(parameter);
    auto const& manifest = _checkpoint->manifest();
    auto const& stored_arrays = manifest.types[manifest.parameters[stored].type];
    for (std::size_t array = 0; array < _table->arrays().size(); ++array) {
        ArrayForm const& form = _table->arrays()[array].form;
        if (_table->arrays()[array].type != spec.type || form.kind != ArrayKind::state) {
            continue;
        }
        auto const found = _checkpoint->find_array(stored, (*_names)[array]);
        if (!found && form.index == _average) {
            _differences.push_back(text({"the checkpoint has no average of parameter '", spec.name,
                                         "', which begins at the loaded weights"}));
            _begin_average.push_back(parameter);
            continue;
        }
        if (!found) {
            bool const was_frozen = !manifest.parameters[stored].trainable;
            (was_frozen && _options.may_thaw ? _accepted : _differences)
                .push_back(text(
                    {"the checkpoint has no state '", (*_names)[array], "' of parameter '",
                     spec.name, was_frozen ? "', which was frozen (LoadOptions::may_thaw)" : "'"}));
            _lacks_states[parameter] = 1;
            continue;
        }
        std::vector<std::size_t> arrays{array};
        std::size_t const scales = _table->find(spec.type, ArrayKind::state_scale, form.index);
        bool const is_scaled = scales != _table->arrays().size();
        bool const was_scaled =
            _checkpoint->find_array(stored, (*_names)[array] + ".scale").has_value();
        if (is_scaled) {
            arrays.push_back(scales);
        }
        if (is_scaled == was_scaled && add_raw(arrays, parameter, stored)) {
            continue;
        }
        if (!number_dtype(stored_arrays[*found].dtype, was_scaled)) {
            problems.push_back(unreadable(text({"the states '", (*_names)[array], "'"}), spec.name,
                                          stored_arrays[*found].dtype));
            continue;
        }
        bool const is_exact =
            !is_scaled
            && (form.dtype == DType::float32
                || (!was_scaled && stored_arrays[*found].dtype == dtype_text(form)));
        if (!is_exact && !_options.may_round) {
            _roundings.push_back(
                text({"the state '", (*_names)[array], "' of parameter '", spec.name,
                      "' is stored as ", stored_arrays[*found].dtype,
                      (was_scaled ? " with scales" : ""), ", which this engine rounds"}));
        }
        Item item;
        item.parameter = parameter;
        item.stored = stored;
        item.begin = spec.tile.begin;
        item.kind = ArrayKind::state;
        item.state = form.index;
        _items.push_back(item);
    }
}

/// Calls `visit(slice, interval, common)` for the parts of an array that this rank holds. `common`
/// counts elements of the stored parameter.
template <class Visitor>
void LoadPlan::for_parts(Item const& item, Visitor const& visit) const {
    for (HeldSlice const& slice : _table->slices(item.array, item.parameter)) {
        std::size_t const first = item.begin + slice.begin;
        Range const held{first, first + slice.elements};
        for (ManifestInterval const& interval :
             _checkpoint->manifest().parameters[item.stored].intervals) {
            Range const common = intersection(held, {static_cast<std::size_t>(interval.begin),
                                                     static_cast<std::size_t>(interval.end)});
            if (!common.is_empty()) {
                visit(slice, interval, common);
            }
        }
    }
}

ZERO_COLD_INLINE std::uint64_t LoadPlan::read_as_floats(Item const& item, StateTable::Copy copy) {
    std::size_t const held = _table->array_of(item.kind, item.state, item.parameter);
    bool const is_rounded =
        _options.scope == LoadScope::parameters || !_layout->parameter(item.parameter).trainable;
    std::size_t const whole = _table->arrays()[held].form.item_elements;
    std::size_t const least = larger(load_chunk, _checkpoint->preferred_elements(item.stored));
    std::size_t const chunk = (least + whole - 1) / whole * whole;
    std::vector<float> values;
    std::uint64_t elements = 0;
    for (HeldSlice const& slice : _table->slices(held, item.parameter)) {
        std::size_t const end = slice.begin + slice.elements;
        for (std::size_t begin = slice.begin; begin < end; begin += chunk) {
            values.resize(smaller(chunk, end - begin));
            std::span<float> const read(values.data(), values.size());
            if (item.kind == ArrayKind::parameter) {
                _checkpoint->read_weights(item.stored, item.begin + begin, read, is_rounded);
            } else {
                _checkpoint->read_values(item.stored, (*_names)[held], item.begin + begin, read);
            }
            elements += values.size();
            if (copy) {
                _table->store(item.kind, item.state, item.parameter, {begin, begin + values.size()},
                              copy, values.data());
            }
        }
    }
    std::string const name = item.kind == ArrayKind::state ? (*_names)[held]
                             : !is_rounded && _checkpoint->find_array(item.stored, "master")
                                 ? "master"
                                 : "parameter";
    return elements
           * _checkpoint->item_bytes(item.stored, *_checkpoint->find_array(item.stored, name));
}

/// @param raw called for the parts of items that are read as they are stored: `(item,
/// memory, interval, begin in the interval, bytes)`
template <class Raw>
std::uint64_t LoadPlan::for_items(StateTable::Copy copy, Raw const& raw) {
    std::uint64_t bytes_needed = 0;
    for (Item const& item : _items) {
        if (!item.is_raw) {
            bytes_needed += read_as_floats(item, copy);
            continue;
        }
        ArrayForm const& form = _table->arrays()[item.array].form;
        for_parts(item,
                  [&](HeldSlice const& slice, ManifestInterval const& interval, Range common) {
                      std::byte* const to = static_cast<std::byte*>(slice.data)
                                            + form.bytes(common.begin - item.begin - slice.begin);
                      std::size_t const from =
                          form.bytes(common.begin - static_cast<std::size_t>(interval.begin));
                      std::size_t const bytes = form.bytes(common.size());
                      raw(item, to, interval, from, bytes);
                      bytes_needed += bytes;
                  });
    }
    return bytes_needed;
}

ZERO_COLD_INLINE void LoadPlan::verify() {
    if (!_checkpoint->is_checkpoint()) { // parameters alone, which need no conversion for this
        for (Item const& item : _items) {
            std::uint64_t const bytes = _checkpoint->item_bytes(item.stored, 0);
            std::size_t const array =
                item.is_raw ? item.array : _table->array_of(item.kind, 0, item.parameter);
            for (HeldSlice const& slice : _table->slices(array, item.parameter)) {
                _checkpoint->verify_items(item.stored, 0, {}, (item.begin + slice.begin) * bytes,
                                          slice.elements * bytes);
            }
        }
        return;
    }
    for_items({}, [&](Item const& item, std::byte*, ManifestInterval const& interval,
                      std::size_t from, std::size_t bytes) {
        _checkpoint->verify_items(item.stored, item.stored_array, interval, from, bytes);
    });
}

ZERO_COLD_INLINE std::uint64_t LoadPlan::load(StateTable::Copy copy, std::byte* staging) {
    std::uint64_t const loaded = for_items(copy, [&](Item const& item, std::byte* to,
                                                     ManifestInterval const& interval,
                                                     std::size_t from, std::size_t bytes) {
        if (staging == nullptr) {
            _checkpoint->read_items(item.stored, item.stored_array, interval, from, {to, bytes});
            return;
        }
        for (std::size_t at = 0; at < bytes; at += piece_bytes) {
            std::size_t const count = smaller(piece_bytes, bytes - at);
            _checkpoint->read_items(item.stored, item.stored_array, interval, from + at,
                                    {staging, count});
            copy(to + at, staging, count);
        }
    });
    for (std::size_t const parameter : _begin_average) {
        for (Range const& own : _table->held(ArrayKind::state, *_average, parameter)) {
            std::vector<float> values(own.size());
            _table->load(ArrayKind::parameter, 0, parameter, own, copy, values.data());
            _table->store(ArrayKind::state, *_average, parameter, own, copy, values.data());
        }
    }
    return loaded;
}

} // namespace ZERO_NAMESPACE::detail
