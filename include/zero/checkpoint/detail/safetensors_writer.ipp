#pragma once

#include "../safetensors_writer.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "safetensors_header.hpp"

#include <array>
#include <system_error>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

/// Smaller parts are collected up to this size before they are written.
inline constexpr std::size_t collected_bytes = std::size_t{1} << 20U;

/// Fits into the cache of a core, together with the data of the system.
inline constexpr std::size_t cached_bytes = std::size_t{1} << 18U;

/// Checksums are written in parts of this size, which cover 8 MiB of data.
inline constexpr std::size_t collected_checksums = 16 * checksum_block_bytes;

/// Creates the file of a writer, which must not exist.
ZERO_COLD_INLINE File create_for(std::filesystem::path const& file, ChecksumPlace checksums) {
    if (checksums == ChecksumPlace::inside) {
        return File::create(file);
    }
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(file, error))) {
        throw_error<CheckpointError>(
            {"zero: '", file.string(), "' exists; remove it or choose another name."});
    }
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

} // namespace ZERO_NAMESPACE
