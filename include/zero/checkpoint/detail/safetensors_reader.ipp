#pragma once

#include "../safetensors_reader.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "checksum.hpp"

#include <algorithm>
#include <array>

namespace ZERO_NAMESPACE {

namespace detail {

/// As the format has it; bounds what is allocated for a header.
inline constexpr std::uint64_t largest_header = 100'000'000;

/// A multiple of a block.
inline constexpr std::uint64_t verified_at_once = std::uint64_t{1} << 20U;

ZERO_COLD_INLINE std::uint64_t from_little_endian(std::span<std::byte const> bytes) noexcept {
    std::uint64_t value = 0;
    for (std::size_t byte = 0; byte < 8; ++byte) {
        value |= std::to_integer<std::uint64_t>(bytes[byte]) << 8 * byte;
    }
    return value;
}

} // namespace detail

ZERO_COLD_INLINE SafetensorsReader::SafetensorsReader(std::filesystem::path const& file,
                                                      std::optional<std::uint64_t> index_checksum)
    : _file(detail::File::open(file)) {
    std::uint64_t const size = _file.size();
    std::array<std::byte, 8> length{};
    if (size < length.size()) {
        detail::refuse_header(_file.name(), "it has less than 8 bytes");
    }
    read_at(0, length);
    std::uint64_t const header_bytes = detail::from_little_endian(length);
    if (header_bytes > detail::largest_header || header_bytes > size - length.size()) {
        detail::refuse_header(_file.name(),
                              detail::text({"its header would have ", header_bytes, " bytes"}));
    }
    std::string json(static_cast<std::size_t>(header_bytes), '\0');
    read_at(length.size(), std::as_writable_bytes(std::span<char>(json.data(), json.size())));
    _data_begin = length.size() + header_bytes;
    _header = detail::SafetensorsHeader::from_json(json, _file.name(), size - _data_begin);
    read_checksums(index_checksum, json);
    for (std::size_t index = 0; index < _header.tensors.size(); ++index) {
        _by_name.emplace(_header.tensors[index].name, index);
    }
}

ZERO_COLD_INLINE void SafetensorsReader::read_checksums(std::optional<std::uint64_t> index_checksum,
                                                        std::string const& json) {
    auto const& tensors = _header.tensors;
    bool const has_checksums = !tensors.empty() && tensors.back().name == detail::checksum_tensor
                               && tensors.back().dtype == "U64" && tensors.back().shape.size() == 1
                               && tensors.back().shape[0]
                                      == (tensors.back().begin + detail::checksum_block_bytes - 1)
                                             / detail::checksum_block_bytes;
    if (has_checksums) {
        _covered = tensors.back().begin;
        std::vector<std::byte> bytes(static_cast<std::size_t>(_header.data_bytes() - _covered));
        read_at(_data_begin + _covered, {bytes.data(), bytes.size()});
        for (std::size_t at = 0; at < bytes.size(); at += 8) {
            _checksums.push_back(detail::from_little_endian({bytes.data() + at, 8}));
        }
        if (index_checksum) {
            detail::Checksum index;
            index.add(std::as_bytes(std::span<char const>(json.data(), json.size())));
            index.add({bytes.data(), bytes.size()});
            if (index.take() == *index_checksum) {
                return;
            }
        }
    }
    if (index_checksum) {
        detail::throw_error<CheckpointError>({"zero: the header or the checksums of '",
                                              _file.name(),
                                              "' are not those that the manifest names; the file "
                                              "was changed or damaged."});
    }
}

ZERO_COLD_INLINE TensorEntry const* SafetensorsReader::find(std::string_view name) const {
    auto const found = _by_name.find(name);
    return found == _by_name.end() ? nullptr : &_header.tensors[found->second];
}

ZERO_COLD_INLINE void SafetensorsReader::read_at(std::uint64_t offset, std::span<std::byte> into) {
    _file.read_at(offset, into);
    _bytes_read += into.size();
}

ZERO_COLD_INLINE void SafetensorsReader::require_inside(TensorEntry const& tensor,
                                                        std::uint64_t offset,
                                                        std::uint64_t bytes) const {
    std::uint64_t const size = tensor.end - tensor.begin;
    if (tensor.begin > tensor.end || tensor.end > _header.data_bytes()
        || (tensor.end > _covered && !_checksums.empty()
            && tensor.name != detail::checksum_tensor)) {
        detail::throw_error<CheckpointError>(
            {"zero: tensor '", tensor.name, "' is not one of '", _file.name(), "'."});
    }
    if (offset > size || bytes > size - offset) {
        detail::throw_error<CheckpointError>({"zero: ", bytes, " bytes at ", offset, " of tensor '",
                                              tensor.name, "' lie outside of it; it has ", size,
                                              " bytes in '", _file.name(), "'."});
    }
}

ZERO_COLD_INLINE std::uint64_t SafetensorsReader::block_end(std::uint64_t block) const noexcept {
    return detail::smaller((block + 1) * detail::checksum_block_bytes, _covered);
}

ZERO_COLD_INLINE void SafetensorsReader::check_block(std::uint64_t block,
                                                     std::span<std::byte const> bytes,
                                                     TensorEntry const& tensor) const {
    if (detail::checksum_of(bytes) != _checksums[static_cast<std::size_t>(block)]) {
        detail::throw_error<CheckpointError>({"zero: the data of tensor '", tensor.name, "' in '",
                                              _file.name(),
                                              "' is damaged: the checksum of the 16 KiB at byte ",
                                              _data_begin + block * detail::checksum_block_bytes,
                                              " is wrong; use another "
                                              "checkpoint."});
    }
}

/// Reads and verifies a whole block, unless it is the last that was read so: small tensors share
/// blocks.
ZERO_COLD_INLINE std::span<std::byte const>
SafetensorsReader::read_block(std::uint64_t block, TensorEntry const& tensor) {
    std::uint64_t const begin = block * detail::checksum_block_bytes;
    auto const size = static_cast<std::size_t>(block_end(block) - begin);
    if (_block_number != block) {
        _block_number.reset();
        _block.resize(detail::checksum_block_bytes);
        std::span<std::byte> const bytes(_block.data(), size);
        read_at(_data_begin + begin, bytes);
        check_block(block, bytes, tensor);
        _block_number = block;
    }
    return {_block.data(), size};
}

ZERO_COLD_INLINE void SafetensorsReader::read(TensorEntry const& tensor, std::uint64_t offset,
                                              std::span<std::byte> into) {
    require_inside(tensor, offset, into.size());
    std::uint64_t at = tensor.begin + offset; // in the data
    if (_checksums.empty() || tensor.name == detail::checksum_tensor) {
        read_at(_data_begin + at, into);
        return;
    }
    constexpr std::uint64_t block_bytes = detail::checksum_block_bytes;
    while (!into.empty()) {
        std::uint64_t const block = at / block_bytes;
        std::uint64_t const whole = at % block_bytes != 0 || into.size() < block_end(block) - at
                                        ? 0
                                        : detail::smaller<std::uint64_t>(into.size(), 1U << 22U);
        if (whole == 0) {
            auto const bytes = read_block(block, tensor);
            auto const skipped = static_cast<std::size_t>(at % block_bytes);
            std::size_t const count = detail::smaller(into.size(), bytes.size() - skipped);
            std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(skipped), count, into.begin());
            at += count;
            into = into.subspan(count);
            continue;
        }
        // Blocks that are needed as a whole are read where they belong.
        std::uint64_t end = at + whole;
        if (end != _covered) {
            end -= end % block_bytes;
        }
        std::span<std::byte> const part = into.first(static_cast<std::size_t>(end - at));
        read_at(_data_begin + at, part);
        for (std::uint64_t begin = at; begin < end; begin = block_end(begin / block_bytes)) {
            check_block(
                begin / block_bytes,
                part.subspan(static_cast<std::size_t>(begin - at),
                             static_cast<std::size_t>(block_end(begin / block_bytes) - begin)),
                tensor);
        }
        at = end;
        into = into.subspan(part.size());
    }
}

ZERO_COLD_INLINE void SafetensorsReader::verify(TensorEntry const& tensor, std::uint64_t offset,
                                                std::uint64_t bytes) {
    require_inside(tensor, offset, bytes);
    if (_checksums.empty() || tensor.name == detail::checksum_tensor) {
        return;
    }
    std::vector<std::byte> buffer;
    while (bytes != 0) {
        std::uint64_t const at = (tensor.begin + offset) % detail::checksum_block_bytes;
        std::uint64_t count = detail::smaller(bytes, detail::verified_at_once - at);
        if (at == 0 && count == detail::verified_at_once) {
            buffer.resize(detail::verified_at_once);
            read(tensor, offset, {buffer.data(), buffer.size()});
        } else {
            std::uint64_t const block = (tensor.begin + offset) / detail::checksum_block_bytes;
            count = detail::smaller(bytes, block_end(block) - (tensor.begin + offset));
            read_block(block, tensor);
        }
        offset += count;
        bytes -= count;
    }
}

} // namespace ZERO_NAMESPACE
