#pragma once

#include "../safetensors_writer.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "../safetensors_reader.hpp"
#include "safetensors_header.hpp"

#include <array>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace ZERO_NAMESPACE {

namespace detail {

/// Smaller parts are collected up to this size before they are written.
inline constexpr std::size_t collected_bytes = std::size_t{1} << 20U;

/// Fits into the cache of a core, together with the data of the system.
inline constexpr std::size_t cached_bytes = std::size_t{1} << 18U;

/// Checksums are written in parts of this size, which cover 8 MiB of data.
inline constexpr std::size_t collected_checksums = 16 * checksum_block_bytes;

ZERO_COLD_INLINE void require_absent(std::filesystem::path const& file) {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(file, error))) {
        throw_error<CheckpointError>(
            {"zero: '", file.string(), "' exists; remove it or choose another name."});
    }
}

/// Creates the file of a writer, which must not exist.
ZERO_COLD_INLINE File create_for(std::filesystem::path const& file, ChecksumPlace checksums) {
    if (checksums == ChecksumPlace::inside) {
        return File::create(file);
    }
    require_absent(file);
    return File::create_named_last(file);
}

/// @brief Returns a number as safetensors stores it: little-endian.
ZERO_COLD_INLINE std::array<std::byte, 8> little_endian(std::uint64_t value) noexcept {
    std::array<std::byte, 8> bytes{};
    for (std::size_t byte = 0; byte < bytes.size(); ++byte) {
        bytes[byte] = static_cast<std::byte>(value >> 8 * byte & 0xffU);
    }
    return bytes;
}

} // namespace detail

ZERO_COLD_INLINE
SafetensorsWriter::SafetensorsWriter(std::filesystem::path const& file,
                                     std::vector<TensorEntry> tensors,
                                     std::map<std::string, std::string> const& metadata,
                                     ChecksumPlace checksums)
    : _file(detail::create_for(file, checksums)) {
    detail::SafetensorsHeader header{std::move(tensors), metadata};
    header.place(file.string(), checksums);
    _header = header.to_json(file.string());
    if (checksums == ChecksumPlace::beside) {
        _beside.emplace(detail::File::create_named_last(detail::checksums_beside(file.string())));
        _expected = header.data_bytes();
    } else {
        _expected = header.tensors[header.tensors.size() - 2].begin;
        _checksums_at = 8 + _header.size() + _expected;
    }
    _checksums.reserve(detail::collected_checksums);
    _collected.reserve(detail::collected_bytes);
    _file.write(detail::little_endian(_header.size()));
    _file.write(std::as_bytes(std::span<char const>(_header.data(), _header.size())));
}

ZERO_COLD_INLINE void SafetensorsWriter::append(std::span<std::byte const> bytes) {
    if (bytes.size() > _expected - _appended) {
        detail::throw_error<CheckpointError>({"zero: '", _file.name(), "' got more data than the ",
                                              _expected, " bytes of its tensors."});
    }
    if (_collected.size() + bytes.size() > detail::collected_bytes) {
        write_collected();
    }
    if (bytes.size() < detail::collected_bytes) {
        add_to_checksums(bytes);
        _collected.insert(_collected.end(), bytes.begin(), bytes.end());
        return;
    }
    while (!bytes.empty()) { // hashed and written while it is in the cache
        auto const part = bytes.first(detail::smaller(bytes.size(), detail::cached_bytes));
        add_to_checksums(part);
        _file.write(part);
        bytes = bytes.subspan(part.size());
    }
}

ZERO_COLD_INLINE void SafetensorsWriter::write_collected() {
    _file.write({_collected.data(), _collected.size()});
    _collected.clear();
}

/// Writes checksums to their place: into a file of their own, or after the data, most of which may
/// not be written yet.
ZERO_COLD_INLINE void SafetensorsWriter::write_checksums() {
    checksum_file().write_at(_checksums_at, {_checksums.data(), _checksums.size()});
    _checksums_at += _checksums.size();
    std::span<std::byte const> left(_checksums.data(), _checksums.size());
    while (!left.empty()) {
        auto const block =
            left.first(detail::smaller(left.size(), std::size_t{detail::checksum_block_bytes}));
        auto const group = detail::little_endian(detail::checksum_of(block));
        _groups.insert(_groups.end(), group.begin(), group.end());
        left = left.subspan(block.size());
    }
    _checksums.clear();
}

ZERO_COLD_INLINE void SafetensorsWriter::add_checksum(std::uint64_t checksum) {
    auto const bytes = detail::little_endian(checksum);
    _checksums.insert(_checksums.end(), bytes.begin(), bytes.end());
    if (_checksums.size() == detail::collected_checksums) {
        write_checksums();
    }
}

ZERO_COLD_INLINE void SafetensorsWriter::add_to_checksums(std::span<std::byte const> bytes) {
    constexpr std::uint64_t block = detail::checksum_block_bytes;
    while (!bytes.empty()) {
        std::uint64_t const into = _appended % block;
        auto const count = detail::smaller(bytes.size(), static_cast<std::size_t>(block - into));
        if (count == block) {
            add_checksum(detail::checksum_of(bytes.first(count)));
        } else {
            _block.add(bytes.first(count));
            if (into + count == block) {
                add_checksum(_block.take());
            }
        }
        _appended += count;
        bytes = bytes.subspan(count);
    }
}

ZERO_COLD_INLINE std::uint64_t SafetensorsWriter::finish() {
    if (_appended != _expected) {
        detail::throw_error<CheckpointError>({"zero: '", _file.name(), "' got ", _appended,
                                              " bytes of data and not the ", _expected,
                                              " of its tensors."});
    }
    if (_appended % detail::checksum_block_bytes != 0) {
        add_checksum(_block.take());
    }
    write_collected();
    write_checksums();
    std::span<std::byte const> const groups(_groups.data(), _groups.size());
    checksum_file().write_at(_checksums_at, groups);
    detail::Checksum index;
    index.add(std::as_bytes(std::span<char const>(_header.data(), _header.size())));
    index.add(groups);
    std::uint64_t const checksum = index.take();
    if (_beside) {
        std::string const digits = detail::checksum_text(checksum);
        std::size_t const place = detail::index_checksum_place(_header, detail::checksum_text(0));
        _file.write_at(8 + place,
                       std::as_bytes(std::span<char const>(digits.data(), digits.size())));
        _beside->sync_and_close();
    }
    _file.sync_and_close();
    return checksum;
}

namespace detail {

/// Returns the name of one of several files: "model-00002-of-00003.safetensors".
ZERO_COLD_INLINE std::filesystem::path numbered(std::filesystem::path const& file,
                                                std::size_t number, std::size_t files) {
    auto const digits = [](std::size_t value) {
        constexpr std::size_t width = 5;
        std::string const all = std::to_string(value);
        return std::string(width - smaller(width, all.size()), '0') + all;
    };
    return file.parent_path()
           / text({file.stem().string(), "-", digits(number), "-of-", digits(files),
                   file.extension().string()});
}

ZERO_COLD_INLINE ModelWriter::ModelWriter(std::filesystem::path const& file,
                                          std::vector<TensorEntry> tensors,
                                          std::uint64_t max_file_bytes)
    : _model(file), _files(1) {
    std::set<std::string> names;
    std::uint64_t used = 0;
    for (TensorEntry& tensor : tensors) {
        if (!names.insert(tensor.name).second) {
            throw_error<CheckpointError>({"zero: two parameters would be tensor '", tensor.name,
                                          "' of '", file.string(),
                                          "'; give them different names, or correct "
                                          "ExportOptions::rules."});
        }
        std::uint64_t const bytes = tensor_bytes(tensor);
        if (max_file_bytes != 0 && used != 0 && bytes != 0
            && (used > max_file_bytes || bytes > max_file_bytes - used)) {
            _files.emplace_back();
            used = 0;
        }
        used += bytes;
        _files.back().push_back(std::move(tensor));
    }
    for (std::size_t number = 1; number <= _files.size(); ++number) {
        _paths.push_back(_files.size() == 1 ? file : numbered(file, number, _files.size()));
    }
    // A folder must hold one model. The files themselves are checked when they are created.
    std::error_code error;
    auto const& other = _files.size() == 1 ? index_beside(file) : file;
    if (max_file_bytes != 0 && std::filesystem::exists(other, error)) {
        throw_error<CheckpointError>({"zero: '", other.string(), "' exists, so '",
                                      file.parent_path().string(),
                                      "' would hold two models; remove it or choose another "
                                      "folder."});
    }
    for (auto const& path : _paths) {
        require_absent(path);
    }
    if (_files.size() > 1) {
        require_absent(index_beside(file));
    }
    begin_file();
}

ZERO_COLD_INLINE ModelWriter::~ModelWriter() {
    if (_is_finished) {
        return;
    }
    std::size_t const complete = _next - (_writer ? 1 : 0);
    _writer.reset();
    for (std::size_t file = 0; file < complete; ++file) {
        std::error_code error; // nothing else can be done
        std::filesystem::remove(_paths[file], error);
        std::filesystem::remove(checksums_beside(_paths[file].string()), error);
    }
}

ZERO_COLD_INLINE void ModelWriter::begin_file() {
    std::vector<TensorEntry>& tensors = _files[_next];
    _left = 0;
    for (TensorEntry const& tensor : tensors) {
        _left += tensor_bytes(tensor);
    }
    _writer.emplace(_paths[_next], tensors, std::map<std::string, std::string>{},
                    ChecksumPlace::beside);
    ++_next;
}

ZERO_COLD_INLINE void ModelWriter::append(std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
        if (_left == 0 && _next < _files.size()) {
            finish_file();
            begin_file();
        }
        auto const count = static_cast<std::size_t>(
            _next < _files.size() ? smaller<std::uint64_t>(bytes.size(), _left) : bytes.size());
        _writer->append(bytes.first(count)); // refuses more than the last file has
        _left -= smaller<std::uint64_t>(count, _left);
        bytes = bytes.subspan(count);
    }
}

ZERO_COLD_INLINE void ModelWriter::finish_file() {
    if (_writer) {
        _writer->finish();
        _writer.reset();
    }
}

ZERO_COLD_INLINE void ModelWriter::finish() {
    finish_file();
    if (_files.size() > 1) {
        std::uint64_t total = 0;
        std::map<std::string, std::string> file_of; // tensors by name, as other programs sort them
        for (std::size_t file = 0; file < _files.size(); ++file) {
            for (TensorEntry const& tensor : _files[file]) {
                total += tensor_bytes(tensor);
                file_of.emplace(tensor.name, _paths[file].filename().string());
            }
        }
        // A JSON value that holds others allocates when it is destroyed; see `JsonTree`.
        auto const quoted = [](std::string const& value) { return nlohmann::json(value).dump(); };
        std::string json = text(
            {"{\n  \"metadata\": {\n    \"total_size\": ", total, "\n  },\n  \"weight_map\": {"});
        for (auto const& [tensor, file] : file_of) {
            json +=
                (json.back() == '{' ? "\n    " : ",\n    ") + quoted(tensor) + ": " + quoted(file);
        }
        json += "\n  }\n}\n";
        File index = File::create_named_last(index_beside(_model));
        index.write(std::as_bytes(std::span<char const>(json.data(), json.size())));
        index.sync_and_close();
    }
    _is_finished = true;
}

} // namespace detail

} // namespace ZERO_NAMESPACE
