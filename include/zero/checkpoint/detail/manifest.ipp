#pragma once

#include "../manifest.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "checksum.hpp"
#include "file.hpp"
#include "json_tree.hpp"

#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

using Json = nlohmann::json;

/// Larger manifests are refused before memory is allocated for them.
inline constexpr std::uint64_t largest_manifest = std::uint64_t{1} << 31U;

/// The checksum is the last member and covers the text before it.
inline constexpr std::string_view before_checksum = ",\n \"checksum\": \"";
inline constexpr std::string_view after_checksum = "\"\n}\n";

ZERO_COLD_INLINE std::string manifest_checksum(std::string_view text) {
    return checksum_text(
        checksum_of(std::as_bytes(std::span<char const>(text.data(), text.size()))));
}

/// Appends the checksum to a manifest that lacks its closing brace.
ZERO_COLD_INLINE std::string with_checksum(std::string text) {
    std::string const checksum = manifest_checksum(text);
    return text.append(before_checksum).append(checksum).append(after_checksum);
}

ZERO_COLD_INLINE bool has_right_checksum(std::string_view json) {
    std::size_t const end = json.rfind(before_checksum);
    if (end == std::string_view::npos) {
        return false;
    }
    std::string_view const text = json.substr(0, end);
    return json.substr(end + before_checksum.size())
           == manifest_checksum(text).append(after_checksum);
}

[[noreturn]] ZERO_COLD_INLINE void refuse_manifest(std::string const& source,
                                                   std::string_view what) {
    throw_error<CheckpointError>({"zero: ", source,
                                  " is not a manifest that this library can "
                                  "read: ",
                                  what, "."});
}

/// Checks that a parameter's intervals are ascending and cover it without gaps.
ZERO_COLD_INLINE void check_intervals(Manifest const& manifest, ManifestParameter const& parameter,
                                      std::string const& source) {
    std::uint64_t end = 0;
    for (ManifestInterval const& interval : parameter.intervals) {
        if (!(interval.begin == end && interval.begin < interval.end
              && interval.file < manifest.files.size())) {
            refuse_manifest(source, text({"the intervals of parameter '", parameter.name,
                                          "' overlap, leave a gap or name a missing file"}));
        }
        end = interval.end;
    }
    if (end != parameter.elements()) {
        refuse_manifest(source, text({"the intervals of parameter '", parameter.name, "' end at ",
                                      end, " of ", parameter.elements(), " elements"}));
    }
}

ZERO_COLD_INLINE bool is_plain_name(std::string const& name) {
    return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos
           && name.find('\0') == std::string::npos;
}

/// Checks everything that a reader relies on: another program may have written the manifest.
ZERO_COLD_INLINE void check_manifest(Manifest const& manifest, std::string const& source) {
    std::set<std::string> names;
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
    for (ManifestParameter const& parameter : manifest.parameters) {
        if (!names.insert(parameter.name).second) {
            refuse_manifest(source, text({"two parameters are named '", parameter.name, "'"}));
        }
        if (parameter.type >= manifest.types.size()) {
            refuse_manifest(source, text({"parameter '", parameter.name, "' has an unknown type"}));
        }
        if (parameter.elements() == std::numeric_limits<std::uint64_t>::max()) {
            refuse_manifest(source,
                            text({"the shape of parameter '", parameter.name, "' overflows"}));
        }
        check_intervals(manifest, parameter, source);
    }
}

/// Fills an object of a `JsonTree`, which must not get values that hold others.
ZERO_COLD_INLINE void fill(Json& json, ManifestArray const& array) {
    json["name"] = array.name;
    json["dtype"] = array.dtype;
    json["item_elements"] = array.item_elements;
    json["has_frozen"] = array.has_frozen;
}

ZERO_COLD_INLINE void fill(Json& json, ManifestParameter const& parameter) {
    json["name"] = parameter.name;
    Json& shape = json["shape"] = Json::array();
    for (std::uint64_t const size : parameter.shape) {
        shape.push_back(size);
    }
    json["type"] = parameter.type;
    json["trainable"] = parameter.trainable;
    json["group"] = parameter.group;
    Json& intervals = json["intervals"] = Json::array();
    for (ManifestInterval const& interval : parameter.intervals) {
        Json& numbers = intervals.emplace_back(Json::value_t::array);
        numbers.push_back(interval.file);
        numbers.push_back(interval.begin);
        numbers.push_back(interval.end);
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

/// The intervals of each member of the array "parameters".
using IntervalLists = std::vector<std::vector<ManifestInterval>>;

/// Takes an array that ends while a manifest is parsed, if it is an interval of a parameter. As a
/// JSON value it would need five times the memory, and a large job has more than a million. A
/// malformed one stays a JSON value, and is refused in its turn.
ZERO_COLD_INLINE bool take_interval(std::vector<Json*> const& open, Json const& value,
                                    IntervalLists& lists) {
    if (open.size() != 4 || !open[0]->is_object() || !open[2]->is_object() || value.size() < 3
        || !(value[0].is_number_unsigned() && value[1].is_number_unsigned()
             && value[2].is_number_unsigned())) {
        return false;
    }
    auto const parameters = open[0]->find("parameters");
    auto const intervals = open[2]->find("intervals");
    if (parameters == open[0]->end() || &*parameters != open[1] || !open[1]->is_array()
        || intervals == open[2]->end() || &*intervals != open[3]) {
        return false;
    }
    lists.resize(open[1]->size());
    lists.back().push_back({value[0].get<std::uint64_t>(), value[1].get<std::uint64_t>(),
                            value[2].get<std::uint64_t>()});
    return true;
}

/// @param intervals those that were taken
ZERO_COLD_INLINE ManifestParameter parameter_from(Json const& json,
                                                  std::vector<ManifestInterval> intervals,
                                                  std::string const& source) {
    ManifestParameter parameter;
    parameter.intervals = std::move(intervals);
    json.at("name").get_to(parameter.name);
    for (Json const& size : list(json.at("shape"), source)) {
        parameter.shape.push_back(natural(size, source));
    }
    parameter.type = static_cast<std::size_t>(natural(json.at("type"), source));
    parameter.group = natural(json.at("group"), source);
    json.at("trainable").get_to(parameter.trainable);
    for (Json const& interval : list(json.at("intervals"), source)) {
        parameter.intervals.push_back({natural(interval.at(0), source),
                                       natural(interval.at(1), source),
                                       natural(interval.at(2), source)});
    }
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

/// Fills a manifest. Throws exceptions of the JSON library if members are missing or have other
/// types.
ZERO_COLD_INLINE Manifest manifest_from(Json const& json, IntervalLists intervals,
                                        std::string const& source) {
    Manifest manifest;
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
    for (Json const& file : list(json.at("files"), source)) {
        auto const checksum = checksum_from(file.at("checksum").get<std::string>());
        if (!checksum.has_value()) {
            refuse_manifest(source, "a checksum is not 16 hexadecimal digits");
        }
        manifest.files.push_back({file.at("name").get<std::string>(), *checksum});
    }
    manifest.scalars = scalars_from(json.at("scalars"), source);
    json.at("extras").get_to(manifest.extras);
    intervals.resize(list(json.at("parameters"), source).size());
    for (Json const& parameter : json.at("parameters")) {
        manifest.parameters.push_back(
            parameter_from(parameter, std::move(intervals[manifest.parameters.size()]), source));
    }
    return manifest;
}

} // namespace detail

ZERO_COLD_INLINE std::uint64_t ManifestParameter::elements() const noexcept {
    std::uint64_t product = 1;
    for (std::uint64_t const size : shape) {
        if (size == 0) {
            return 0;
        }
        if (product > std::numeric_limits<std::uint64_t>::max() / size) {
            return std::numeric_limits<std::uint64_t>::max();
        }
        product *= size;
    }
    return product;
}

ZERO_COLD_INLINE std::string tensor_name(ManifestArray const& array,
                                         ManifestParameter const& parameter,
                                         ManifestInterval const& interval) {
    std::string name = array.name + "/" + parameter.name;
    if (interval.begin != 0 || interval.end != parameter.elements()) {
        name += detail::text({"[", interval.begin, ":", interval.end, "]"});
    }
    return name;
}

ZERO_COLD_INLINE void Manifest::require_valid_extras() const {
    for (auto const& [name, content] : extras) {
        try {
            (void)detail::Json(name).dump();
            (void)detail::Json(content).dump();
        } catch (detail::Json::exception const& error) {
            using Handler = detail::Json::error_handler_t;
            detail::throw_error<CheckpointError>(
                {"zero: the extra ", detail::Json(name).dump(-1, ' ', false, Handler::replace),
                 " is not text in UTF-8, and only texts are saved; encode bytes, for instance as "
                 "hexadecimal digits. ",
                 error.what(), "."});
        }
    }
}

ZERO_COLD_INLINE std::string Manifest::to_json() const {
    using detail::Json;
    detail::JsonTree tree;
    Json& json = tree.root() = Json::object();
    json["format"] = "zero checkpoint";
    json["version"] = newest_version;
    json["composition"] = composition;
    json["optimizer"] = optimizer;
    Json& values = json["scalars"] = Json::object();
    for (auto const& [name, value] : scalars.counts) {
        values[name] = value;
    }
    for (auto const& [name, value] : scalars.numbers) {
        values[name] = value;
    }
    for (auto const& [name, value] : scalars.texts) {
        values[name] = value;
    }
    Json& all_extras = json["extras"] = Json::object();
    for (auto const& [name, value] : extras) {
        all_extras[name] = value;
    }
    Json& all_files = json["files"] = Json::array();
    for (ManifestFile const& own : files) {
        Json& one = all_files.emplace_back(Json::value_t::object);
        one["name"] = own.name;
        one["checksum"] = detail::checksum_text(own.checksum);
    }
    Json& all_types = json["types"] = Json::array();
    for (auto const& arrays : types) {
        Json& type = all_types.emplace_back(Json::value_t::array);
        for (ManifestArray const& array : arrays) {
            detail::fill(type.emplace_back(Json::value_t::object), array);
        }
    }
    Json& all_parameters = json["parameters"] = Json::array();
    for (ManifestParameter const& parameter : parameters) {
        detail::fill(all_parameters.emplace_back(Json::value_t::object), parameter);
    }
    try {
        std::string text = json.dump(1);
        text.resize(text.size() - std::string_view("\n}").size());
        return detail::with_checksum(std::move(text));
    } catch (detail::Json::exception const& error) { // a text that is not UTF-8
        detail::throw_error<CheckpointError>(
            {"zero: the manifest cannot be written: ", error.what(), "."});
    }
}

ZERO_COLD_INLINE Manifest Manifest::from_json(std::string_view json, std::string const& source) {
    Manifest manifest;
    try {
        detail::JsonTree tree;
        detail::Json const& parsed = tree.root();
        detail::IntervalLists intervals;
        bool const is_valid = tree.parse(json, 5, [&](auto const& open, detail::Json const& value) {
            return detail::take_interval(open, value, intervals);
        });
        if (!is_valid || !parsed.is_object()) {
            detail::refuse_manifest(source,
                                    "it is no object, is nested too deeply or has a name twice");
        }
        // A comparison with a text would make a JSON value of it, and may not throw.
        if (auto const* const format = parsed.at("format").get_ptr<std::string const*>();
            format == nullptr || *format != "zero checkpoint") {
            detail::refuse_manifest(source, "its format is another");
        }
        if (auto const version = detail::natural(parsed.at("version"), source);
            version > newest_version) {
            detail::refuse_manifest(
                source, detail::text({"it has version ", version, ", and this library reads up to ",
                                      newest_version, "; use a newer library"}));
        }
        if (!detail::has_right_checksum(json)) {
            detail::refuse_manifest(source, "its checksum is wrong, so it was changed or damaged");
        }
        manifest = detail::manifest_from(parsed, std::move(intervals), source);
    } catch (detail::Json::exception const& error) {
        detail::refuse_manifest(source, error.what());
    }
    detail::check_manifest(manifest, source);
    return manifest;
}

ZERO_COLD_INLINE Manifest Manifest::read(std::filesystem::path const& checkpoint) {
    std::filesystem::path const path = checkpoint / file;
    std::string const text = detail::read_text(path, detail::largest_manifest);
    return from_json(text, path.string());
}

} // namespace ZERO_NAMESPACE
