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

#include <array>
#include <cstdint>
#include <istream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
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
    std::unordered_set<std::string_view> parameter_names; // there may be 10^5
    parameter_names.reserve(manifest.parameters.size() + manifest.base.size());
    for (auto const* const parameters : {&manifest.parameters, &manifest.base}) {
        for (ManifestParameter const& parameter : *parameters) {
            if (!parameter_names.insert(parameter.name).second) {
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

/// Reads files, parameters, the base and arrays while a manifest is parsed. What is wrong with them
/// is kept until version and checksum are known.
class ManifestRecords {
public:
    ManifestRecords(Manifest& manifest, KeepIntervals keep) : _manifest(&manifest), _keep(keep) {}
    ManifestRecords(ManifestRecords const&) = delete;
    ManifestRecords& operator=(ManifestRecords const&) = delete;
    ~ManifestRecords() = default;

    /// As `JsonTree::parse` calls it.
    [[nodiscard]] JsonRecord* begin(std::vector<Json*> const& open, std::string const&) {
        if (open.size() != 2 || !open[0]->is_object() || !open[1]->is_array()) {
            return nullptr;
        }
        for (auto const& [list, record] : _lists) {
            if (auto const found = open[0]->find(list);
                found != open[0]->end() && &*found == open[1]) {
                return record;
            }
        }
        return nullptr;
    }

    void end(JsonRecord const& record) {
        std::string problem = record.problem();
        std::optional<std::uint64_t> checksum;
        if (problem.empty() && (&record == &_file_record || &record == &_base_record)) {
            checksum = checksum_from(_digits);
            problem = checksum ? "" : "its checksum is not 16 hexadecimal digits";
        }
        if (&record == &_file_record && record.has("host") && !record.has("rank")) {
            problem = "it has no 'rank'";
        }
        if (problem.empty()) {
            if (&record == &_file_record) {
                _file.checksum = *checksum;
                _manifest->files.push_back(std::move(_file));
            } else if (&record == &_array_record) {
                _array.intervals = intervals();
                _manifest->arrays.push_back(std::move(_array));
            } else {
                _parameter.type = static_cast<std::size_t>(_type);
                add_parameter(checksum);
            }
        } else if (_malformed.empty()) {
            std::string const& name = &record == &_file_record    ? _file.name
                                      : &record == &_array_record ? _array.name
                                                                  : _parameter.name;
            _malformed = text({"'", name, "': ", problem});
        }
        _file = {};
        _array = {};
        _parameter = {};
    }

    /// Refuses objects that were not right, and other values in their lists.
    void require_all(Json const& json, std::string const& source) const {
        if (!_malformed.empty()) {
            refuse_manifest(source, _malformed);
        }
        for (auto const& [name, record] : _lists) {
            bool const is_optional = record == &_array_record || record == &_base_record;
            if (is_optional && !json.contains(name)) {
                continue;
            }
            for (Json const& other : list(json.at(name), source)) {
                refuse_manifest(source, text({"a ", other.type_name(), " stands in '", name,
                                              "' where an object belongs"}));
            }
        }
    }

    /// Refuses intervals of parameters. Call it when all files are known.
    void check_intervals(std::string const& source) const {
        if (!_problem.empty()) {
            refuse_manifest(source, _problem);
        }
        if (_last_file && *_last_file >= _manifest->files.size()) {
            refuse_manifest(source,
                            text({"an interval of parameter '", _names_last_file, "' names file ",
                                  *_last_file, " of ", _manifest->files.size()}));
        }
    }

private:
    struct List {
        char const* name;
        JsonRecord* record;
    };

    /// Returns those of the object that has ended. The list that has grown serves the next one.
    [[nodiscard]] std::vector<ManifestInterval> intervals() const {
        std::vector<ManifestInterval> own;
        own.reserve(_rows.size());
        for (JsonRecord::Row const& row : _rows) {
            own.push_back({row[0], row[1], row[2]});
        }
        return own;
    }

    /// @param hash of a parameter of the base
    void add_parameter(std::optional<std::uint64_t> hash) {
        if (hash) {
            _parameter.hash = *hash;
            _manifest->base.push_back(std::move(_parameter));
            return;
        }
        _parameter.intervals = intervals();
        check(_parameter);
        _parameter.intervals.shrink_to_fit(); // those that were dropped are most of them
        _manifest->parameters.push_back(std::move(_parameter));
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
    std::string _malformed;                  ///< why the first object is not right
    std::string _problem;                    ///< of the first intervals that are not right
    std::optional<std::uint64_t> _last_file; ///< the largest number of a file
    std::string _names_last_file;            ///< the parameter that names it

    // What is being read.
    ManifestFile _file;
    ManifestExtraArray _array;
    ManifestParameter _parameter;
    std::vector<JsonRecord::Row> _rows; ///< its intervals
    std::uint64_t _type = 0;
    std::string _digits; ///< of a checksum
    JsonRecord _file_record{{{.name = "checksum", .text = &_digits},
                             {.name = "host", .text = &_file.host, .is_optional = true},
                             {.name = "name", .text = &_file.name},
                             {.name = "rank", .natural = &_file.rank, .is_optional = true}}};
    JsonRecord _array_record{{{.name = "dtype", .text = &_array.dtype},
                              {.name = "intervals", .rows = &_rows},
                              {.name = "is_by_rows", .flag = &_array.is_by_rows},
                              {.name = "name", .text = &_array.name},
                              {.name = "shape", .naturals = &_array.shape}}};
    JsonRecord _parameter_record{{{.name = "group", .natural = &_parameter.group},
                                  {.name = "intervals", .rows = &_rows},
                                  {.name = "name", .text = &_parameter.name},
                                  {.name = "shape", .naturals = &_parameter.shape},
                                  {.name = "trainable", .flag = &_parameter.trainable},
                                  {.name = "type", .natural = &_type}}};
    JsonRecord _base_record{{{.name = "group", .natural = &_parameter.group},
                             {.name = "hash", .text = &_digits},
                             {.name = "intervals", .rows = &_rows},
                             {.name = "name", .text = &_parameter.name},
                             {.name = "shape", .naturals = &_parameter.shape},
                             {.name = "trainable", .flag = &_parameter.trainable},
                             {.name = "type", .natural = &_type}}};
    std::array<List, 4> _lists{{{"parameters", &_parameter_record},
                                {"base", &_base_record},
                                {"files", &_file_record},
                                {"arrays", &_array_record}}};
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
    if (json.contains("base")) {
        json.at("base_name").get_to(manifest.base_name);
    }
    manifest.scalars = scalars_from(json.at("scalars"), source);
    json.at("extras").get_to(manifest.extras);
}

ZERO_COLD_INLINE Manifest read_manifest(ManifestText& json, KeepIntervals keep,
                                        std::string const& source) {
    Manifest manifest;
    ManifestRecords records(manifest, keep);
    try {
        JsonTree tree;
        Json const& parsed = tree.root();
        std::istream stream(&json);
        if (!tree.parse(stream, 5, records) || !parsed.is_object()) {
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
        records.require_all(parsed, source);
    } catch (Json::exception const& error) {
        refuse_manifest(source, error.what());
    }
    check_manifest(manifest, source);
    records.check_intervals(source);
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
