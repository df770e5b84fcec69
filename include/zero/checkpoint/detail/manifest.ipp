#pragma once

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../tier/detail/checksum.hpp"
#include "../checkpoint_error.hpp"
#include "../manifest.hpp"
#include "file.hpp"
#include "manifest_text.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE {

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
    std::string name;
    name.reserve(array.name.size() + 1 + parameter.name.size());
    name.append(array.name).append(1, '/').append(parameter.name);
    if (interval.begin != 0 || interval.end != parameter.elements()) {
        name += detail::text({"[", interval.begin, ":", interval.end, "]"});
    }
    return name;
}

ZERO_COLD_INLINE void Manifest::require_valid_extras() const {
    try {
        (void)nlohmann::json(base_name).dump();
    } catch (nlohmann::json::exception const& error) {
        detail::throw_error<CheckpointError>({"zero: SaveOptions::base is not text in UTF-8; give "
                                              "another name. ",
                                              error.what(), "."});
    }
    for (ManifestExtraArray const& array : arrays) {
        try {
            (void)nlohmann::json(array.name).dump();
        } catch (nlohmann::json::exception const& error) {
            detail::throw_error<CheckpointError>({"zero: the name of an array of "
                                                  "SaveOptions::arrays is not text in UTF-8. ",
                                                  error.what(), "."});
        }
    }
    for (auto const& [name, content] : extras) {
        try {
            (void)nlohmann::json(name).dump();
            (void)nlohmann::json(content).dump();
        } catch (nlohmann::json::exception const& error) {
            using Handler = nlohmann::json::error_handler_t;
            detail::throw_error<CheckpointError>(
                {"zero: the extra ", nlohmann::json(name).dump(-1, ' ', false, Handler::replace),
                 " is not text in UTF-8, and only texts are saved; encode bytes, for instance as "
                 "hexadecimal digits. ",
                 error.what(), "."});
        }
    }
}

ZERO_COLD_INLINE std::string Manifest::to_json() const {
    std::string all;
    detail::write_json(*this, [&](std::string_view part) { all += part; });
    return all;
}

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// Writes JSON as `nlohmann::json::dump(1)` does, without a tree in memory: a large job has more
/// than a million intervals.
class JsonText {
public:
    explicit JsonText(FunctionRef<std::string_view> write) : _write(write) {}

    void begin(char bracket) {
        _part += bracket;
        ++_level;
        _is_first = true;
    }

    void end(char bracket) {
        --_level;
        if (!_is_first) {
            new_line();
        }
        _part += bracket;
        _is_first = false;
    }

    /// Begins an item of an array.
    void item() {
        if (!_is_first) {
            _part += ',';
        }
        _is_first = false;
        new_line();
        if (_part.size() >= manifest_part_bytes) {
            flush();
        }
    }

    /// Begins a member of an object, whose names must ascend.
    void key(std::string const& name) {
        item();
        value(name);
        _part += ": ";
    }

    void value(std::uint64_t number) { _part += std::to_string(number); }

    /// @throws nlohmann::json::exception for a text that is not UTF-8
    void value(nlohmann::json const& scalar) { _part += scalar.dump(); }

    /// Writes what is left and the last member.
    void finish() {
        flush();
        std::string last(before_checksum);
        _write(last.append(checksum_text(_checksum.take())).append(after_checksum));
    }

private:
    void new_line() { _part.append(1, '\n').append(_level, ' '); }

    void flush() {
        _checksum.add(std::as_bytes(std::span<char const>(_part.data(), _part.size())));
        _write(_part);
        _part.clear();
    }

    FunctionRef<std::string_view> _write;
    std::string _part;
    std::size_t _level = 0;
    bool _is_first = true; ///< of the members of the container that is open
    Checksum _checksum;
};

ZERO_COLD_INLINE void write_array(JsonText& json, ManifestArray const& array) {
    json.begin('{');
    json.key("dtype");
    json.value(array.dtype);
    json.key("has_frozen");
    json.value(nlohmann::json(array.has_frozen));
    json.key("item_elements");
    json.value(array.item_elements);
    json.key("name");
    json.value(array.name);
    json.end('}');
}

ZERO_COLD_INLINE void write_intervals(JsonText& json,
                                      std::vector<ManifestInterval> const& intervals) {
    json.begin('[');
    for (ManifestInterval const& interval : intervals) {
        json.item();
        json.begin('[');
        for (std::uint64_t const number : {interval.file, interval.begin, interval.end}) {
            json.item();
            json.value(number);
        }
        json.end(']');
    }
    json.end(']');
}

ZERO_COLD_INLINE void write_shape(JsonText& json, std::vector<std::uint64_t> const& shape) {
    json.begin('[');
    for (std::uint64_t const size : shape) {
        json.item();
        json.value(size);
    }
    json.end(']');
}

/// @param is_base it has a hash instead of intervals
ZERO_COLD_INLINE void write_parameter(JsonText& json, ManifestParameter const& parameter,
                                      bool is_base = false) {
    json.begin('{');
    json.key("group");
    json.value(parameter.group);
    if (is_base) {
        json.key("hash");
        json.value(checksum_text(parameter.hash));
    }
    json.key("intervals");
    write_intervals(json, is_base ? std::vector<ManifestInterval>() : parameter.intervals);
    json.key("name");
    json.value(parameter.name);
    json.key("shape");
    write_shape(json, parameter.shape);
    json.key("trainable");
    json.value(nlohmann::json(parameter.trainable));
    json.key("type");
    json.value(std::uint64_t{parameter.type});
    json.end('}');
}

ZERO_COLD_INLINE void write_extra_array(JsonText& json, ManifestExtraArray const& array) {
    json.begin('{');
    json.key("dtype");
    json.value(array.dtype);
    json.key("intervals");
    write_intervals(json, array.intervals);
    json.key("is_by_rows");
    json.value(nlohmann::json(array.is_by_rows));
    json.key("name");
    json.value(array.name);
    json.key("shape");
    write_shape(json, array.shape);
    json.end('}');
}

/// Writes numbers or texts by name. @param maps later ones replace earlier ones of their name
template <class... Maps>
void write_members(JsonText& json, Maps const&... maps) {
    std::map<std::string, nlohmann::json> members; // none of them holds others
    (
        [&] {
            for (auto const& [name, value] : maps) {
                members[name] = value;
            }
        }(),
        ...);
    json.begin('{');
    for (auto const& [name, value] : members) {
        json.key(name);
        json.value(value);
    }
    json.end('}');
}

ZERO_COLD_INLINE void write_json(Manifest const& manifest, FunctionRef<std::string_view> write) {
    JsonText json(write);
    try {
        json.begin('{');
        if (!manifest.arrays.empty()) {
            json.key("arrays");
            json.begin('[');
            for (ManifestExtraArray const& array : manifest.arrays) {
                json.item();
                write_extra_array(json, array);
            }
            json.end(']');
        }
        if (!manifest.base.empty()) {
            json.key("base");
            json.begin('[');
            for (ManifestParameter const& parameter : manifest.base) {
                json.item();
                write_parameter(json, parameter, true);
            }
            json.end(']');
            json.key("base_name");
            json.value(manifest.base_name);
        }
        json.key("composition");
        json.value(manifest.composition);
        json.key("extras");
        write_members(json, manifest.extras);
        json.key("files");
        json.begin('[');
        for (ManifestFile const& file : manifest.files) {
            json.item();
            json.begin('{');
            json.key("checksum");
            json.value(checksum_text(file.checksum));
            if (!file.host.empty()) {
                json.key("host");
                json.value(file.host);
            }
            json.key("name");
            json.value(file.name);
            if (!file.host.empty()) {
                json.key("rank");
                json.value(file.rank);
            }
            json.end('}');
        }
        json.end(']');
        json.key("format");
        json.value("zero checkpoint");
        json.key("optimizer");
        json.value(manifest.optimizer);
        json.key("parameters");
        json.begin('[');
        for (ManifestParameter const& parameter : manifest.parameters) {
            json.item();
            write_parameter(json, parameter);
        }
        json.end(']');
        json.key("scalars");
        write_members(json, manifest.scalars.counts, manifest.scalars.numbers,
                      manifest.scalars.texts);
        json.key("types");
        json.begin('[');
        for (auto const& arrays : manifest.types) {
            json.item();
            json.begin('[');
            for (ManifestArray const& array : arrays) {
                json.item();
                write_array(json, array);
            }
            json.end(']');
        }
        json.end(']');
        json.key("version");
        json.value(Manifest::newest_version);
        json.finish();
    } catch (nlohmann::json::exception const& error) { // a text that is not UTF-8
        throw_error<CheckpointError>({"zero: the manifest cannot be written: ", error.what(), "."});
    }
}

ZERO_COLD_INLINE std::string named_with_host(ManifestFile const& file) {
    std::string name = "'" + file.name + "'";
    return file.host.empty()
               ? name
               : text({name, ", which rank ", file.rank, " saved on host '", file.host, "'"});
}

ZERO_COLD_INLINE void write_manifest(std::filesystem::path const& checkpoint,
                                     Manifest const& manifest) {
    File file = File::create(checkpoint / Manifest::file);
    write_json(manifest, [&](std::string_view part) {
        file.write(std::as_bytes(std::span<char const>(part.data(), part.size())));
    });
    file.sync_and_close();
    (void)read_manifest(checkpoint, drop_intervals); // a published manifest must be readable
}

} // namespace ZERO_NAMESPACE::detail
