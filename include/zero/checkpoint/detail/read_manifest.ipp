#pragma once

#include "../manifest.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../tier/detail/checksum.hpp"
#include "../checkpoint_error.hpp"
#include "file.hpp"
#include "json_tree.hpp"
#include "manifest_text.hpp"
#include "safetensors_header.hpp"

#include <cstdint>
#include <istream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

namespace detail {

using Json = nlohmann::json;

/// Larger manifests are refused before they are read.
inline constexpr std::uint64_t largest_manifest = std::uint64_t{1} << 31U;

[[noreturn]] ZERO_COLD_INLINE void refuse_manifest(std::string const& source,
                                                   std::string_view what) {
    throw_error<CheckpointError>({"zero: ", source,
                                  " is not a manifest that this library can "
                                  "read: ",
                                  what, "."});
}

/// Returns why a parameter's intervals are not ascending or do not cover it without gaps; empty if
/// they do.
ZERO_COLD_INLINE std::string problem_of_intervals(ManifestParameter const& parameter) {
    std::uint64_t end = 0;
    for (ManifestInterval const& interval : parameter.intervals) {
        if (interval.begin != end || interval.begin >= interval.end) {
            return text({"the intervals of parameter '", parameter.name,
                         "' overlap or leave a gap at element ", end});
        }
        end = interval.end;
    }
    return end == parameter.elements()
               ? std::string()
               : text({"the intervals of parameter '", parameter.name, "' end at ", end, " of ",
                       parameter.elements(), " elements"});
}

ZERO_COLD_INLINE bool is_plain_name(std::string const& name) {
    return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos
           && name.find('\0') == std::string::npos;
}

/// Checks everything that a reader relies on, except intervals: another program may have written
/// the manifest.
ZERO_COLD_INLINE void check_manifest(Manifest const& manifest, std::string const& source) {
    std::set<std::string_view> names;
    for (ManifestFile const& file : manifest.files) {
        if (!(is_plain_name(file.name) && names.insert(file.name).second)) {
            refuse_manifest(source,
                            text({"the file name '", file.name, "' is not a plain, unique name"}));
        }
    }
    for (auto const& arrays : manifest.types) {
        names.clear();
        for (ManifestArray const& array : arrays) {
            if (!(array.name.find('/') == std::string::npos && names.insert(array.name).second
                  && array.item_elements != 0)) {
                refuse_manifest(source, text({"the array '", array.name, "' is not valid"}));
            }
        }
        if (!names.contains("parameter")) {
            refuse_manifest(source, "a type has no array 'parameter'");
        }
    }
    names.clear();
    for (ManifestExtraArray const& array : manifest.arrays) {
        std::uint64_t end = 0;
        bool is_valid = names.insert(array.name).second && !array.shape.empty()
                        && tensor_bytes({"", array.dtype, array.shape})
                               != std::numeric_limits<std::uint64_t>::max();
        for (ManifestInterval const& interval : array.intervals) {
            is_valid = is_valid && interval.begin == end && interval.begin <= interval.end
                       && interval.file < manifest.files.size();
            end = interval.end;
        }
        if (!is_valid || end != array.rows()) {
            refuse_manifest(source, text({"the array '", array.name,
                                          "' of the caller has no valid "
                                          "type, shape or intervals"}));
        }
    }
    names.clear();
    for (auto const* const parameters : {&manifest.parameters, &manifest.base}) {
        for (ManifestParameter const& parameter : *parameters) {
            if (!names.insert(parameter.name).second) {
                refuse_manifest(source, text({"two parameters are named '", parameter.name, "'"}));
            }
            if (parameter.type >= manifest.types.size()) {
                refuse_manifest(source,
                                text({"parameter '", parameter.name, "' has an unknown type"}));
            }
            if (parameter.elements() == std::numeric_limits<std::uint64_t>::max()) {
                refuse_manifest(source,
                                text({"the shape of parameter '", parameter.name, "' overflows"}));
            }
        }
    }
}

/// The JSON library converts negative numbers, fractions and truth values silently.
ZERO_COLD_INLINE std::uint64_t natural(Json const& json, std::string const& source) {
    if (!json.is_number_unsigned()) {
        refuse_manifest(source, text({json.dump(), " is not a natural number"}));
    }
    return json.get<std::uint64_t>();
}

/// The JSON library iterates over a number as if it were an array of one.
ZERO_COLD_INLINE Json const& list(Json const& json, std::string const& source) {
    if (!json.is_array()) {
        refuse_manifest(source, text({"a ", json.type_name(), " stands where an array belongs"}));
    }
    return json;
}

ZERO_COLD_INLINE std::uint64_t checksum_member(Json const& json, char const* name,
                                               std::string const& source) {
    auto const checksum = checksum_from(json.at(name).get<std::string>());
    if (!checksum.has_value()) {
        refuse_manifest(source, text({"a ", name, " is not 16 hexadecimal digits"}));
    }
    return *checksum;
}

ZERO_COLD_INLINE ManifestFile file_from(Json const& json, std::string const& source) {
    ManifestFile file{json.at("name").get<std::string>(),
                      checksum_member(json, "checksum", source)};
    if (json.contains("host")) {
        json.at("host").get_to(file.host);
        file.rank = natural(json.at("rank"), source);
    }
    return file;
}

ZERO_COLD_INLINE std::vector<ManifestInterval> intervals_from(Json const& json,
                                                              std::string const& source) {
    std::vector<ManifestInterval> intervals;
    for (Json const& interval : list(json.at("intervals"), source)) {
        intervals.push_back({natural(interval.at(0), source), natural(interval.at(1), source),
                             natural(interval.at(2), source)});
    }
    return intervals;
}

ZERO_COLD_INLINE ManifestExtraArray extra_array_from(Json const& json, std::string const& source) {
    ManifestExtraArray array{json.at("name").get<std::string>(),
                             json.at("dtype").get<std::string>(),
                             {},
                             json.at("is_by_rows").get<bool>(),
                             intervals_from(json, source)};
    for (Json const& size : list(json.at("shape"), source)) {
        array.shape.push_back(natural(size, source));
    }
    return array;
}

/// @param json without the intervals that `ManifestParts` has taken
ZERO_COLD_INLINE ManifestParameter parameter_from(Json const& json, std::string const& source) {
    ManifestParameter parameter;
    json.at("name").get_to(parameter.name);
    for (Json const& size : list(json.at("shape"), source)) {
        parameter.shape.push_back(natural(size, source));
    }
    parameter.type = static_cast<std::size_t>(natural(json.at("type"), source));
    parameter.group = natural(json.at("group"), source);
    json.at("trainable").get_to(parameter.trainable);
    parameter.intervals = intervals_from(json, source);
    return parameter;
}

ZERO_COLD_INLINE ManifestParameter base_from(Json const& json, std::string const& source) {
    ManifestParameter parameter = parameter_from(json, source);
    parameter.intervals.clear();
    parameter.hash = checksum_member(json, "hash", source);
    return parameter;
}

ZERO_COLD_INLINE ManifestScalars scalars_from(Json const& json, std::string const& source) {
    ManifestScalars scalars;
    for (auto const& [name, value] : json.items()) {
        if (value.is_string()) {
            scalars.texts[name] = value.get<std::string>();
        } else if (value.is_number_float()) {
            scalars.numbers[name] = value.get<double>();
        } else {
            scalars.counts[name] = natural(value, source);
        }
    }
    return scalars;
}

/// Takes files, parameters and intervals out of the JSON tree while a manifest is parsed: as JSON
/// values they would need five times the memory. A malformed one stays a JSON value, and is refused
/// later.
class ManifestParts {
public:
    ManifestParts(Manifest& manifest, KeepIntervals keep, std::string const& source)
        : _manifest(&manifest), _keep(keep), _source(&source) {}

    /// As `JsonTree::parse` calls it.
    [[nodiscard]] bool take(std::vector<Json*> const& open, Json const& value) {
        if (!open[0]->is_object()) {
            return false;
        }
        if (open.size() == 4 && is_member(*open[0], "parameters", *open[1]) && open[2]->is_object()
            && is_member(*open[2], "intervals", *open[3])) {
            return take_interval(value);
        }
        if (open.size() != 2 || !value.is_object()) {
            return false;
        }
        if (is_member(*open[0], "files", *open[1])) {
            return unless_malformed(
                [&] { _manifest->files.push_back(file_from(value, *_source)); });
        }
        if (is_member(*open[0], "base", *open[1])) {
            return unless_malformed([&] { _manifest->base.push_back(base_from(value, *_source)); });
        }
        return is_member(*open[0], "parameters", *open[1]) && take_parameter(value);
    }

    /// Refuses intervals that were taken. Call it when all files are known.
    void check_intervals() const {
        if (!_problem.empty()) {
            refuse_manifest(*_source, _problem);
        }
        if (_last_file && *_last_file >= _manifest->files.size()) {
            refuse_manifest(*_source,
                            text({"an interval of parameter '", _names_last_file, "' names file ",
                                  *_last_file, " of ", _manifest->files.size()}));
        }
    }

private:
    [[nodiscard]] static bool is_member(Json const& object, char const* name, Json const& value) {
        auto const found = object.find(name);
        return found != object.end() && &*found == &value && value.is_array();
    }

    template <class Take>
    [[nodiscard]] static bool unless_malformed(Take const& take) {
        try {
            take();
            return true;
        } catch (Json::exception const&) {
            return false;
        } catch (CheckpointError const&) {
            return false;
        }
    }

    [[nodiscard]] bool take_interval(Json const& value) {
        if (!value.is_array() || value.size() < 3
            || !(value[0].is_number_unsigned() && value[1].is_number_unsigned()
                 && value[2].is_number_unsigned())) {
            return false;
        }
        _intervals.push_back({value[0].get<std::uint64_t>(), value[1].get<std::uint64_t>(),
                              value[2].get<std::uint64_t>()});
        return true;
    }

    [[nodiscard]] bool take_parameter(Json const& value) {
        ManifestParameter parameter;
        parameter.intervals.swap(_intervals);
        bool const is_whole = unless_malformed([&] {
            ManifestParameter read = parameter_from(value, *_source);
            read.intervals.swap(parameter.intervals);
            parameter = std::move(read);
        });
        if (is_whole) {
            check(parameter);
        }
        // The list that has grown serves the next parameter.
        std::vector<ManifestInterval> kept(parameter.intervals.begin(), parameter.intervals.end());
        parameter.intervals.swap(kept);
        _intervals.swap(kept);
        _intervals.clear();
        if (is_whole) {
            _manifest->parameters.push_back(std::move(parameter));
        }
        return is_whole;
    }

    /// Checks a parameter's intervals, and drops those that the reader does not need.
    void check(ManifestParameter& parameter) {
        std::string problem = problem_of_intervals(parameter);
        for (ManifestInterval const& interval : parameter.intervals) {
            if (!_last_file || interval.file > *_last_file) {
                _last_file = interval.file;
                _names_last_file = parameter.name;
            }
        }
        if (!problem.empty()) {
            parameter.intervals.clear();
            if (_problem.empty()) {
                _problem = std::move(problem);
            }
        } else if (_keep) {
            _keep(parameter);
        }
    }

    Manifest* _manifest;
    KeepIntervals _keep;
    std::string const* _source;
    std::vector<ManifestInterval> _intervals; ///< of the parameter that is being parsed
    std::string _problem;                     ///< of the first intervals that are not right
    std::optional<std::uint64_t> _last_file;  ///< the largest number of a file
    std::string _names_last_file;             ///< the parameter that names it
};

/// Fills a manifest with what was left in the JSON tree. Throws exceptions of the JSON library if
/// members are missing or have other types.
ZERO_COLD_INLINE void fill(Manifest& manifest, Json const& json, std::string const& source) {
    json.at("composition").get_to(manifest.composition);
    json.at("optimizer").get_to(manifest.optimizer);
    for (Json const& type : list(json.at("types"), source)) {
        manifest.types.emplace_back();
        for (Json const& array : list(type, source)) {
            manifest.types.back().push_back(
                {array.at("name").get<std::string>(), array.at("dtype").get<std::string>(),
                 natural(array.at("item_elements"), source), array.at("has_frozen").get<bool>()});
        }
    }
    for (Json const& malformed : list(json.at("files"), source)) {
        manifest.files.push_back(file_from(malformed, source));
    }
    if (json.contains("arrays")) {
        for (Json const& array : list(json.at("arrays"), source)) {
            manifest.arrays.push_back(extra_array_from(array, source));
        }
    }
    if (json.contains("base")) {
        json.at("base_name").get_to(manifest.base_name);
        for (Json const& malformed : list(json.at("base"), source)) {
            manifest.base.push_back(base_from(malformed, source));
        }
    }
    manifest.scalars = scalars_from(json.at("scalars"), source);
    json.at("extras").get_to(manifest.extras);
    for (Json const& malformed : list(json.at("parameters"), source)) {
        manifest.parameters.push_back(parameter_from(malformed, source));
    }
}

ZERO_COLD_INLINE Manifest read_manifest(ManifestText& json, KeepIntervals keep,
                                        std::string const& source) {
    Manifest manifest;
    ManifestParts parts(manifest, keep, source);
    try {
        JsonTree tree;
        Json const& parsed = tree.root();
        std::istream stream(&json);
        bool const is_valid = tree.parse(stream, 5, [&](auto const& open, Json const& value) {
            return parts.take(open, value);
        });
        if (!is_valid || !parsed.is_object()) {
            refuse_manifest(source, "it is no object, is nested too deeply or has a name twice");
        }
        // A comparison with a text would make a JSON value of it, and may not throw.
        if (auto const* const format = parsed.at("format").get_ptr<std::string const*>();
            format == nullptr || *format != "zero checkpoint") {
            refuse_manifest(source, "its format is another");
        }
        if (auto const version = natural(parsed.at("version"), source);
            version > Manifest::newest_version) {
            refuse_manifest(source,
                            text({"it has version ", version, ", and this library reads up to ",
                                  Manifest::newest_version, "; use a newer library"}));
        }
        if (!json.has_right_checksum()) {
            refuse_manifest(source, "its checksum is wrong, so it was changed or damaged");
        }
        fill(manifest, parsed, source);
    } catch (Json::exception const& error) {
        refuse_manifest(source, error.what());
    }
    check_manifest(manifest, source);
    parts.check_intervals();
    return manifest;
}

ZERO_COLD_INLINE Manifest read_manifest(std::filesystem::path const& checkpoint,
                                        KeepIntervals keep) {
    return read_manifest(File::open(checkpoint / Manifest::file), keep);
}

ZERO_COLD_INLINE Manifest read_manifest(File const& file, KeepIntervals keep) {
    file.require_at_most(largest_manifest);
    ManifestText json(file);
    return read_manifest(json, keep, file.name());
}

} // namespace detail

ZERO_COLD_INLINE Manifest Manifest::from_json(std::string_view json, std::string const& source) {
    detail::ManifestText whole(json);
    return detail::read_manifest(whole, {}, source);
}

ZERO_COLD_INLINE Manifest Manifest::read(std::filesystem::path const& checkpoint) {
    return detail::read_manifest(checkpoint, {});
}

} // namespace ZERO_NAMESPACE
