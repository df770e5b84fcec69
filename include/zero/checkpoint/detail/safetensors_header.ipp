#pragma once

#include "safetensors_header.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../tier/detail/checksum.hpp"
#include "../checkpoint_error.hpp"
#include "json_tree.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

namespace ZERO_NAMESPACE::detail {

inline constexpr std::uint64_t no_size = std::numeric_limits<std::uint64_t>::max();

/// Keeps sums of offsets below the largest file offset.
inline constexpr std::uint64_t largest_data = std::uint64_t{1} << 62U;

/// The limit of the format. It bounds the memory that is allocated for a header.
inline constexpr std::uint64_t largest_header = 100'000'000;

/// Headers end at multiples of this, so that tensors of any type are aligned in a mapped file.
inline constexpr std::size_t header_alignment = 64;

/// Returns the size of an element in bytes; 0 for an unknown type.
ZERO_COLD_INLINE std::uint64_t bytes_of_dtype(std::string_view dtype) noexcept {
    constexpr std::array<std::pair<std::string_view, std::uint64_t>, 15> types{{{"F64", 8},
                                                                                {"F32", 4},
                                                                                {"F16", 2},
                                                                                {"BF16", 2},
                                                                                {"I64", 8},
                                                                                {"I32", 4},
                                                                                {"I16", 2},
                                                                                {"I8", 1},
                                                                                {"U64", 8},
                                                                                {"U32", 4},
                                                                                {"U16", 2},
                                                                                {"U8", 1},
                                                                                {"BOOL", 1},
                                                                                {"F8_E4M3", 1},
                                                                                {"F8_E5M2", 1}}};
    for (auto const& [name, bytes] : types) {
        if (name == dtype) {
            return bytes;
        }
    }
    return 0;
}

ZERO_COLD_INLINE std::uint64_t tensor_bytes(TensorEntry const& tensor) noexcept {
    std::uint64_t bytes = bytes_of_dtype(tensor.dtype);
    if (bytes == 0) {
        return no_size;
    }
    bool is_empty = false;
    for (std::uint64_t const size : tensor.shape) {
        is_empty = is_empty || size == 0;
    }
    if (is_empty) {
        return 0;
    }
    for (std::uint64_t const size : tensor.shape) {
        if (bytes > no_size / size) {
            return no_size;
        }
        bytes *= size;
    }
    return bytes;
}

[[noreturn]] ZERO_COLD_INLINE void refuse_header(std::string const& file, std::string_view what) {
    constexpr std::size_t most = 500; // the parser quotes its last token, of any length
    throw_error<CheckpointError>(
        {"zero: '", file, "' is not a valid safetensors file: ", what.substr(0, most), "."});
}

ZERO_COLD_INLINE std::size_t index_checksum_place(std::string_view json, std::string_view digits) {
    std::string const before = text({"\"", index_checksum_key, "\":\""});
    std::size_t const found = json.find(text({before, digits, "\""}));
    return found == std::string_view::npos ? found : found + before.size();
}

ZERO_COLD_INLINE void SafetensorsHeader::place(std::string const& file, ChecksumPlace checksums) {
    std::uint64_t end = 0;
    std::uint64_t covered = 0;
    std::set<std::string_view> names{block_checksums, group_checksums, "__metadata__"};
    for (TensorEntry& tensor : tensors) {
        std::uint64_t const bytes = tensor_bytes(tensor);
        if (bytes > largest_data - end || !names.insert(tensor.name).second) {
            throw_error<CheckpointError>({"zero: tensor '", tensor.name, "' of '", file,
                                          "' has an unknown type, is too large, or has a name "
                                          "that is taken; rename it."});
        }
        tensor.begin = end;
        tensor.end = end += bytes;
    }
    metadata["block_bytes"] = std::to_string(checksum_block_bytes);
    if (checksums == ChecksumPlace::beside) {
        metadata["format"] = "pt"; // other readers accept no name that they do not know
        metadata[index_checksum_key] = checksum_text(0);
        return;
    }
    metadata["format"] = "zero";
    for (std::string_view const name : {block_checksums, group_checksums}) {
        std::uint64_t const blocks = checksum_blocks(end - covered);
        covered = end;
        tensors.push_back({std::string(name), "U64", {blocks}, end, end + 8 * blocks});
        end += 8 * blocks;
    }
}

/// The names are unique, so members are joined as text: an object of the JSON library that keeps
/// their order would compare each with all before it.
ZERO_COLD_INLINE std::string SafetensorsHeader::to_json(std::string const& file) const {
    try {
        // A JSON value that holds others allocates when it is destroyed; see `JsonTree`.
        auto const quoted = [](std::string const& value) { return nlohmann::json(value).dump(); };
        std::string json = R"({"__metadata__":{)";
        for (auto const& [name, value] : metadata) {
            json += (json.back() == '{' ? "" : ",") + quoted(name) + ':' + quoted(value);
        }
        json += '}';
        for (TensorEntry const& tensor : tensors) {
            json += ',' + quoted(tensor.name) + R"(:{"dtype":)" + quoted(tensor.dtype)
                    + R"(,"shape":[)";
            for (std::uint64_t const size : tensor.shape) {
                json += text({(json.back() == '[' ? "" : ","), size});
            }
            json += text({"],\"data_offsets\":[", tensor.begin, ',', tensor.end, "]}"});
        }
        json += '}';
        json.append((header_alignment - (json.size() + 8) % header_alignment) % header_alignment,
                    ' ');
        if (json.size() > largest_header) {
            throw_error<CheckpointError>({"zero: the header of '", file, "' would have ",
                                          json.size(), " bytes, and a reader accepts ",
                                          largest_header,
                                          "; write fewer tensors or shorter names."});
        }
        return json;
    } catch (nlohmann::json::exception const& error) {
        throw_error<CheckpointError>(
            {"zero: the header of '", file, "' cannot be written: ", error.what(), "."});
    }
}

/// Reads the tensors of a header while it is parsed.
class HeaderRecords {
public:
    HeaderRecords(SafetensorsHeader& header, std::string const& file)
        : _header(&header), _file(&file) {}
    HeaderRecords(HeaderRecords const&) = delete;
    HeaderRecords& operator=(HeaderRecords const&) = delete;
    ~HeaderRecords() = default;

    /// As `JsonTree::parse` calls it.
    [[nodiscard]] JsonRecord* begin(std::vector<nlohmann::json*> const& open,
                                    std::string const& name) {
        if (open.size() != 1 || !open[0]->is_object() || name == "__metadata__") {
            return nullptr;
        }
        _tensor.name = name;
        return &_record;
    }

    void end(JsonRecord const& record) {
        std::string problem = record.problem();
        if (problem.empty()) {
            bool const are_offsets = _offsets.size() == 2 && _offsets[0] <= _offsets[1];
            if (!are_offsets
                || (bytes_of_dtype(_tensor.dtype) != 0
                    && tensor_bytes(_tensor) != _offsets[1] - _offsets[0])) {
                problem = "its offsets do not fit its shape";
            }
        }
        if (!problem.empty()) {
            refuse_header(*_file, text({"tensor '", _tensor.name, "': ", problem}));
        }
        _tensor.begin = _offsets[0];
        _tensor.end = _offsets[1];
        _header->tensors.push_back(std::move(_tensor));
    }

private:
    SafetensorsHeader* _header;
    std::string const* _file;
    TensorEntry _tensor; ///< that is being read
    std::vector<std::uint64_t> _offsets;
    JsonRecord _record{{{.name = "dtype", .text = &_tensor.dtype},
                        {.name = "shape", .naturals = &_tensor.shape},
                        {.name = "data_offsets", .naturals = &_offsets}}};
};

ZERO_COLD_INLINE SafetensorsHeader SafetensorsHeader::from_json(std::string_view json,
                                                                std::string const& file,
                                                                std::uint64_t data_bytes) {
    SafetensorsHeader header;
    try {
        JsonTree tree;
        HeaderRecords records(header, file);
        nlohmann::json const& parsed = tree.root();
        if (!tree.parse(json, 4, records) || !parsed.is_object()) {
            refuse_header(file,
                          "its header is no object, is nested too deeply or has a name twice");
        }
        for (auto const& [name, value] : parsed.items()) {
            if (name != "__metadata__") {
                refuse_header(file, text({"tensor '", name, "' is no object"}));
            }
            value.get_to(header.metadata);
        }
    } catch (nlohmann::json::exception const& error) {
        refuse_header(file, error.what());
    }
    // Without data all offsets are equal. The checksums come last even then.
    auto const place = [](TensorEntry const& tensor) {
        int const last = tensor.name == group_checksums   ? 2
                         : tensor.name == block_checksums ? 1
                                                          : 0;
        return std::tuple(tensor.begin, tensor.end, last);
    };
    auto const is_before = [&](TensorEntry const& a, TensorEntry const& b) {
        return place(a) < place(b);
    };
    if (!std::is_sorted(header.tensors.begin(), header.tensors.end(), is_before)) {
        std::stable_sort(header.tensors.begin(), header.tensors.end(), is_before);
    }
    std::uint64_t end = 0;
    for (TensorEntry const& tensor : header.tensors) {
        if (tensor.begin != end) {
            refuse_header(file, text({"tensor '", tensor.name, "' begins at ", tensor.begin,
                                      " and not where the one before ends, at ", end}));
        }
        end = tensor.end;
    }
    if (end != data_bytes) {
        refuse_header(file, text({"its tensors have ", end, " bytes and its data ", data_bytes}));
    }
    return header;
}

} // namespace ZERO_NAMESPACE::detail
