#pragma once

#include "../safetensors_reader.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../tier/detail/checksum.hpp"
#include "../checkpoint_error.hpp"
#include "../tensor_rules.hpp"
#include "json_tree.hpp"

#include <algorithm>
#include <array>
#include <system_error>

#include <nlohmann/json.hpp>

namespace ZERO_NAMESPACE {

namespace detail {

/// Blocks that are read in one call: 128 KiB, which are still in the cache when they are hashed.
inline constexpr std::uint64_t blocks_at_once = 64;

ZERO_COLD_INLINE std::uint64_t from_little_endian(std::span<std::byte const> bytes) noexcept {
    std::uint64_t value = 0;
    for (std::size_t byte = 0; byte < 8; ++byte) {
        value |= std::to_integer<std::uint64_t>(bytes[byte]) << 8 * byte;
    }
    return value;
}

ZERO_COLD_INLINE std::vector<std::uint64_t> numbers_of(std::vector<std::byte> const& bytes) {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(bytes.size() / 8);
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        numbers.push_back(from_little_endian({bytes.data() + at, 8}));
    }
    return numbers;
}

/// @param file, for messages
[[noreturn]] ZERO_COLD_INLINE void refuse_pickle(std::string const& file) {
    throw_error<CheckpointError>(
        {"zero: '", file,
         "' holds objects of Python (pickle), which only Python can read. Convert it there, with "
         "the packages torch and safetensors:\n"
         "    weights = torch.load(\"",
         file,
         "\", map_location=\"cpu\", weights_only=True)\n"
         "    safetensors.torch.save_file({name: tensor.clone().contiguous() for name, tensor in "
         "weights.items()}, \"model.safetensors\")"});
}

/// Refuses a file of `torch.save`: an archive of zip, or a pickle of protocol 2 or later.
/// @param begin its first bytes, which cannot be those of a safetensors file
ZERO_COLD_INLINE void refuse_pickle(std::string const& file, std::span<std::byte const> begin) {
    constexpr std::array<unsigned char, 4> archive{'P', 'K', 3, 4};
    bool is_archive = true;
    for (std::size_t i = 0; i < archive.size(); ++i) {
        is_archive = is_archive && begin[i] == std::byte{archive[i]};
    }
    auto const protocol = std::to_integer<unsigned>(begin[1]);
    if (is_archive || (begin[0] == std::byte{0x80} && protocol >= 2 && protocol <= 5)) {
        refuse_pickle(file);
    }
}

ZERO_COLD_INLINE ModelFiles ModelFiles::at(std::filesystem::path const& path) {
    ModelFiles model;
    std::filesystem::path file = path;
    std::error_code error;
    auto const exists =
        [&](std::filesystem::path const& name) { // a link whose target is missing, too
            return std::filesystem::exists(std::filesystem::symlink_status(name, error));
        };
    if (std::filesystem::is_directory(path, error)) {
        file = path / "model.safetensors";
        bool const has_index = exists(index_beside(file));
        if (has_index && exists(file)) {
            throw_error<CheckpointError>({"zero: '", path.string(),
                                          "' has 'model.safetensors' and an index of several "
                                          "files; give the path of the one that you mean."});
        }
        if (!has_index && !exists(file)) {
            for (char const* const name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
                if (exists(path / name)) {
                    refuse_pickle((path / name).string());
                }
            }
            throw_error<CheckpointError>(
                {"zero: '", path.string(),
                 "' has neither 'model.safetensors' nor "
                 "'model.safetensors.index.json'; give the path of the file itself, "
                 "or load a checkpoint with load_checkpoint()."});
        }
        file = has_index ? index_beside(file) : file;
    }
    if (file.extension() != ".json") {
        model.files.push_back(std::move(file));
        return model;
    }
    auto const refuse = [&](std::string_view why) {
        constexpr std::size_t most = 500; // the parser quotes its last token, of any length
        throw_error<CheckpointError>({"zero: '", file.string(), "' is not the index of a model: ",
                                      why.substr(0, most), ". Copy or write it again."});
    };
    try {
        JsonTree tree;
        std::string const content = read_text(file, largest_header, File::Links::followed);
        constexpr std::size_t most_levels = 16;
        if (!tree.parse(content, most_levels) || !tree.root().is_object()) {
            refuse("it is no object, is nested too deeply or has a name twice");
        }
        nlohmann::json const& names = tree.root().at("weight_map");
        if (!names.is_object() || names.empty()) {
            refuse("'weight_map' is no object that names the file of each tensor");
        }
        std::map<std::string, std::size_t> numbers;
        for (auto const& [tensor, value] : names.items()) {
            if (!value.is_string()) {
                refuse(text({"the file of tensor '", tensor, "' is no text"}));
            }
            std::string const& name = value.get_ref<std::string const&>();
            if (name.empty() || name == "." || name == ".."
                || name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
                refuse(text({"it names the file '", name, "' of tensor '", tensor,
                             "', and files are beside the index"}));
            }
            auto const [at, is_new] = numbers.emplace(name, model.files.size());
            if (is_new) {
                model.files.push_back(file.parent_path() / name);
                if (!exists(model.files.back())) {
                    throw_error<CheckpointError>(
                        {"zero: '", file.string(), "' names the file '", name, "' of tensor '",
                         tensor,
                         "', which is missing; copy it beside the index, or write the "
                         "model again."});
                }
            }
            model.tensors.emplace(tensor, at->second);
        }
    } catch (nlohmann::json::exception const& failure) {
        refuse(failure.what());
    }
    model.index = std::move(file);
    return model;
}

ZERO_COLD_INLINE void
ModelFiles::require_tensors(std::span<std::unique_ptr<SafetensorsReader> const> opened) const {
    std::vector<std::string> problems;
    for (auto const& [tensor, file] : tensors) {
        if (opened[file]->find(tensor) == nullptr) {
            problems.push_back(text({"'", files[file].filename().string(), "' has no tensor '",
                                     tensor, "', which the index says it has"}));
        }
    }
    std::map<std::string_view, std::size_t> first; // the file of each tensor
    for (std::size_t file = 0; file < opened.size(); ++file) {
        for (TensorEntry const& tensor : opened[file]->tensors()) {
            auto const [at, is_new] = first.emplace(tensor.name, file);
            if (!is_new && !holds_checksums(tensor.name)) {
                problems.push_back(text({"tensor '", tensor.name, "' is in '",
                                         files[at->second].filename().string(), "' and in '",
                                         files[file].filename().string(), "'"}));
            }
        }
    }
    if (!problems.empty()) {
        throw_error<CheckpointError>({"zero: the files of '", index.string(),
                                      "' are not those of one model:", listed(problems),
                                      "\nCopy or write all of them again."});
    }
}

} // namespace detail

ZERO_COLD_INLINE SafetensorsReader::SafetensorsReader(std::filesystem::path const& file,
                                                      std::optional<std::uint64_t> index_checksum)
    : SafetensorsReader(detail::File::open(file, index_checksum ? detail::File::Links::refused
                                                                : detail::File::Links::followed),
                        index_checksum) {}

ZERO_COLD_INLINE SafetensorsReader::SafetensorsReader(detail::File file,
                                                      std::optional<std::uint64_t> index_checksum)
    : _file(std::move(file)) {
    std::uint64_t const size = _file.size();
    std::array<std::byte, 8> length{};
    if (size < length.size()) {
        detail::refuse_header(_file.name(), "it has less than 8 bytes");
    }
    read_at(_file, 0, length);
    std::uint64_t const header_bytes = detail::from_little_endian(length);
    if (header_bytes > detail::largest_header || header_bytes > size - length.size()) {
        detail::refuse_pickle(_file.name(), length);
        detail::refuse_header(_file.name(),
                              detail::text({"its header would have ", header_bytes, " bytes"}));
    }
    std::string json(static_cast<std::size_t>(header_bytes), '\0');
    read_at(_file, length.size(),
            std::as_writable_bytes(std::span<char>(json.data(), json.size())));
    _data_begin = length.size() + header_bytes;
    _header = detail::SafetensorsHeader::from_json(json, _file.name(), size - _data_begin);
    read_groups(index_checksum, json);
    _by_name.reserve(_header.tensors.size());
    for (std::size_t index = 0; index < _header.tensors.size(); ++index) {
        if (!_by_name.emplace(_header.tensors[index].name, index).second) {
            detail::refuse_header(
                _file.name(),
                detail::text({"it has the name '", _header.tensors[index].name, "' twice"}));
        }
    }
}

ZERO_COLD_INLINE bool SafetensorsReader::has_checksums() const noexcept {
    auto const& tensors = _header.tensors;
    if (tensors.size() < 2) {
        return false;
    }
    TensorEntry const& blocks = tensors[tensors.size() - 2];
    TensorEntry const& groups = tensors.back();
    auto const covers = [](TensorEntry const& checksums, std::uint64_t bytes) {
        return checksums.dtype == "U64" && checksums.shape.size() == 1
               && checksums.shape[0] == detail::checksum_blocks(bytes);
    };
    return blocks.name == detail::block_checksums && covers(blocks, blocks.begin)
           && groups.name == detail::group_checksums && covers(groups, blocks.end - blocks.begin);
}

ZERO_COLD_INLINE void SafetensorsReader::read_groups(std::optional<std::uint64_t> index_checksum,
                                                     std::string const& json) {
    if (has_checksums()) {
        TensorEntry const& groups = _header.tensors.back();
        _covered = _header.tensors[_header.tensors.size() - 2].begin;
        std::vector<std::byte> bytes(static_cast<std::size_t>(groups.end - groups.begin));
        read_at(_file, _data_begin + groups.begin, {bytes.data(), bytes.size()});
        _checksums_begin = _data_begin + _covered;
        _groups = detail::numbers_of(bytes);
        if (index_checksum) {
            detail::Checksum index;
            index.add(std::as_bytes(std::span<char const>(json.data(), json.size())));
            index.add({bytes.data(), bytes.size()});
            if (index.take() == *index_checksum) {
                return;
            }
        }
    } else if (!index_checksum) {
        read_beside(json);
    }
    if (index_checksum) {
        detail::throw_error<CheckpointError>({"zero: the header or the checksums of '",
                                              _file.name(),
                                              "' are not those that the manifest names; the file "
                                              "was changed or damaged, so load another checkpoint "
                                              "(LoadOptions::name)."});
    }
}

/// Opens the checksums beside an exported file; it may have been copied without them.
ZERO_COLD_INLINE void SafetensorsReader::read_beside(std::string const& json) {
    auto const digits = _header.metadata.find(detail::index_checksum_key);
    std::string path = detail::checksums_beside(_file.name());
    std::error_code error;
    if (!std::filesystem::exists(path, error)) { // a symbolic link has them beside its target
        auto const target = std::filesystem::canonical(_file.name(), error);
        path = detail::checksums_beside(target.string());
    }
    if (digits == _header.metadata.end() || error || !std::filesystem::exists(path, error)) {
        return;
    }
    _beside.emplace(detail::File::open(path, detail::File::Links::followed));
    _covered = _header.data_bytes();
    std::uint64_t const groups_begin = 8 * detail::checksum_blocks(_covered);
    std::vector<std::byte> groups(
        static_cast<std::size_t>(8 * detail::checksum_blocks(groups_begin)));
    std::size_t const place = detail::index_checksum_place(json, digits->second);
    bool is_right = place != std::string::npos && _beside->size() == groups_begin + groups.size();
    if (is_right) {
        read_at(*_beside, groups_begin, {groups.data(), groups.size()});
        std::string const zeros = detail::checksum_text(0);
        std::string header = json;
        header.replace(place, digits->second.size(), zeros);
        detail::Checksum index;
        index.add(std::as_bytes(std::span<char const>(header.data(), header.size())));
        index.add({groups.data(), groups.size()});
        is_right = detail::checksum_text(index.take()) == digits->second;
    }
    if (!is_right) {
        detail::throw_error<CheckpointError>(
            {"zero: '", path, "' does not hold the checksums of '", _file.name(),
             "'; one of the files was changed or damaged. Remove the former to read the latter "
             "without verification."});
    }
    _groups = detail::numbers_of(groups);
}

ZERO_COLD_INLINE TensorEntry const* SafetensorsReader::find(std::string_view name) const {
    auto const found = _by_name.find(name);
    return found == _by_name.end() ? nullptr : &_header.tensors[found->second];
}

ZERO_COLD_INLINE TensorEntry const* SafetensorsReader::find_next(std::string_view name) {
    for (std::size_t const near : {_last, _last + 1}) {
        if (near < _header.tensors.size() && _header.tensors[near].name == name) {
            _last = near;
            return &_header.tensors[near];
        }
    }
    TensorEntry const* const found = find(name);
    _last = found == nullptr ? _last : static_cast<std::size_t>(found - _header.tensors.data());
    return found;
}

ZERO_COLD_INLINE void SafetensorsReader::read_at(detail::File& file, std::uint64_t offset,
                                                 std::span<std::byte> into) {
    file.reopen();
    file.read_at(offset, into);
    _bytes_read += into.size();
}

ZERO_COLD_INLINE void SafetensorsReader::require_inside(TensorEntry const& tensor,
                                                        std::uint64_t offset,
                                                        std::uint64_t bytes) const {
    std::uint64_t const size = tensor.end - tensor.begin;
    if (tensor.begin > tensor.end || tensor.end > _header.data_bytes()
        || (tensor.end > _covered && !_groups.empty() && !detail::holds_checksums(tensor.name))) {
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

/// Returns the end of a message about damage.
ZERO_COLD_INLINE char const* SafetensorsReader::remedy() const noexcept {
    return _beside ? "; copy or write the file and its '.checksums' again."
                   : "; load another checkpoint (LoadOptions::name).";
}

/// Returns the checksum of a block. It comes from a block of checksums, which is read and verified.
ZERO_COLD_INLINE std::uint64_t SafetensorsReader::checksum(std::uint64_t block,
                                                           TensorEntry const& tensor) {
    std::uint64_t const group = block / detail::checksums_per_block;
    std::uint64_t const first = group * detail::checksums_per_block;
    auto const count = static_cast<std::size_t>(
        detail::smaller(detail::checksums_per_block, detail::checksum_blocks(_covered) - first));
    auto const checksums = _kept_checksums.get(group, 8 * count, [&](std::span<std::byte> into) {
        read_at(_beside ? *_beside : _file, _checksums_begin + 8 * first, into);
        if (detail::checksum_of(into) != _groups[static_cast<std::size_t>(group)]) {
            detail::throw_error<CheckpointError>({"zero: the checksums of tensor '", tensor.name,
                                                  "' in '", (_beside ? *_beside : _file).name(),
                                                  "' are damaged, at byte ",
                                                  _checksums_begin + 8 * first, remedy()});
        }
    });
    return detail::from_little_endian(
        checksums.subspan(8 * static_cast<std::size_t>(block - first), 8));
}

/// Reads consecutive blocks into `into` and verifies their checksums there.
ZERO_COLD_INLINE void SafetensorsReader::read_blocks(std::uint64_t block, std::span<std::byte> into,
                                                     TensorEntry const& tensor) {
    read_at(_file, _data_begin + block * detail::checksum_block_bytes, into);
    while (!into.empty()) {
        auto const size = detail::smaller(into.size(), std::size_t{detail::checksum_block_bytes});
        if (detail::checksum_of(into.first(size)) != checksum(block, tensor)) {
            detail::throw_error<CheckpointError>(
                {"zero: the data of tensor '", tensor.name, "' in '", _file.name(),
                 "' is damaged: the checksum of the 2 KiB at byte ",
                 _data_begin + block * detail::checksum_block_bytes, " is wrong", remedy()});
        }
        into = into.subspan(size);
        ++block;
    }
}

/// Returns a whole block, which is valid until the next call.
ZERO_COLD_INLINE std::span<std::byte const>
SafetensorsReader::read_block(std::uint64_t block, TensorEntry const& tensor) {
    std::uint64_t const bytes = block_end(block) - block * detail::checksum_block_bytes;
    return _kept.get(block, static_cast<std::size_t>(bytes),
                     [&](std::span<std::byte> into) { read_blocks(block, into, tensor); });
}

ZERO_COLD_INLINE void SafetensorsReader::verify(TensorEntry const& tensor, std::uint64_t offset,
                                                std::uint64_t bytes) {
    require_inside(tensor, offset, bytes);
    if (bytes == 0 || _groups.empty() || detail::holds_checksums(tensor.name)) {
        return;
    }
    _file.reopen();
    _file.will_read(_data_begin + tensor.begin + offset, bytes);
    constexpr std::uint64_t block_bytes = detail::checksum_block_bytes;
    std::uint64_t const end = (tensor.begin + offset + bytes - 1) / block_bytes + 1;
    std::uint64_t block = (tensor.begin + offset) / block_bytes;
    std::vector<std::byte> buffer;
    while (block < end) {
        std::uint64_t const stop = detail::smaller(block + detail::blocks_at_once, end);
        if (stop == block + 1) { // perhaps shared with tensors that were verified just before
            read_block(block, tensor);
        } else {
            buffer.resize(static_cast<std::size_t>(block_end(stop - 1) - block * block_bytes));
            read_blocks(block, {buffer.data(), buffer.size()}, tensor);
        }
        block = stop;
    }
}

ZERO_COLD_INLINE void SafetensorsReader::read(TensorEntry const& tensor, std::uint64_t offset,
                                              std::span<std::byte> into) {
    require_inside(tensor, offset, into.size());
    if (into.size() > detail::blocks_at_once * detail::checksum_block_bytes) { // in several calls
        _file.reopen();
        _file.will_read(_data_begin + tensor.begin + offset, into.size());
    }
    std::uint64_t at = tensor.begin + offset; // in the data
    if (_groups.empty() || detail::holds_checksums(tensor.name)) {
        read_at(_file, _data_begin + at, into);
        return;
    }
    constexpr std::uint64_t block_bytes = detail::checksum_block_bytes;
    while (!into.empty()) {
        std::uint64_t const block = at / block_bytes;
        std::size_t count = 0;
        if (at % block_bytes != 0 || into.size() < block_end(block) - at) {
            auto const bytes =
                read_block(block, tensor).subspan(static_cast<std::size_t>(at % block_bytes));
            count = detail::smaller(into.size(), bytes.size());
            std::copy_n(bytes.begin(), count, into.begin());
        } else { // whole blocks are read in place
            std::uint64_t end =
                detail::smaller(block_end(block + detail::blocks_at_once - 1), at + into.size());
            if (end != _covered) {
                end -= end % block_bytes;
            }
            count = static_cast<std::size_t>(end - at);
            read_blocks(block, into.first(count), tensor);
        }
        at += count;
        into = into.subspan(count);
    }
}

} // namespace ZERO_NAMESPACE
