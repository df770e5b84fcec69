#pragma once

#include "../checkpoint_directory.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "../manifest.hpp"
#include "file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>

namespace ZERO_NAMESPACE {

namespace detail {

inline constexpr char const* incomplete_prefix = ".incomplete-";
inline constexpr char const* replaced_prefix = ".replaced-"; ///< complete until it is removed
inline constexpr char const* removed_prefix = ".removed-";   ///< files may be missing
inline constexpr char const* latest_file = "latest";

/// Runs an operation of the standard library's file system.
template <class Run>
auto on_file_system(Run const& run) {
    try {
        return run();
    } catch (std::filesystem::filesystem_error const& error) {
        throw CheckpointError(text({"zero: ", error.what(), "."}), SourceLocation::current(),
                              error.code().value());
    }
}

/// A name with a prefix must still be short enough for the file system.
inline constexpr std::size_t longest_name = 200;

ZERO_COLD_INLINE bool is_checkpoint_name(std::string const& name) noexcept {
    return !name.empty() && name.size() <= longest_name && name.front() != '.'
           && name.find('/') == std::string::npos && name.find('\0') == std::string::npos
           && name != latest_file;
}

/// Exchanges two names, or gives the first the second name if that is free.
ZERO_COLD_INLINE void exchange_or_rename(std::filesystem::path const& from,
                                         std::filesystem::path const& to,
                                         std::filesystem::path const& aside) {
#if defined(RENAME_EXCHANGE)
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
        return;
    }
#endif
    if (std::filesystem::exists(to)) { // a file system that cannot exchange
        std::filesystem::rename(to, aside);
    }
    std::filesystem::rename(from, to);
}

} // namespace detail

ZERO_COLD_INLINE CheckpointDirectory::CheckpointDirectory(std::filesystem::path directory)
    : _directory(std::move(directory)) {}

ZERO_COLD_INLINE std::filesystem::path CheckpointDirectory::path(std::string const& name) const {
    if (!detail::is_checkpoint_name(name)) {
        detail::throw_error<CheckpointError>(
            {"zero: '", name,
             "' cannot name a checkpoint; use at most 200 bytes without '/' that do not begin with "
             "'.' and are not 'latest'."});
    }
    return _directory / name;
}

ZERO_COLD_INLINE std::filesystem::path
CheckpointDirectory::incomplete(std::string const& name) const {
    return _directory / (detail::incomplete_prefix + path(name).filename().string());
}

ZERO_COLD_INLINE void CheckpointDirectory::begin(std::string const& name) const {
    auto const folder = incomplete(name);
    detail::on_file_system([&] {
        if (std::filesystem::create_directories(_directory)) {
            detail::sync_folder(std::filesystem::absolute(_directory / "..").lexically_normal());
        }
        if (std::filesystem::exists(std::filesystem::symlink_status(path(name)))
            && !is_complete(name)) {
            detail::throw_error<CheckpointError>({"zero: '", path(name).string(),
                                                  "' exists and is not a checkpoint; remove it or "
                                                  "choose another name."});
        }
        std::vector<std::filesystem::path> left;
        for (auto const& entry : std::filesystem::directory_iterator(_directory)) {
            std::string const found = entry.path().filename().string();
            if (found.starts_with(detail::incomplete_prefix)
                || found.starts_with(detail::replaced_prefix)
                || found.starts_with(detail::removed_prefix)) {
                left.push_back(entry.path());
            }
        }
        for (auto const& path : left) {
            std::string const found = path.filename().string();
            if (found.starts_with(detail::replaced_prefix)) {
                std::string const lost =
                    found.substr(std::string_view(detail::replaced_prefix).size());
                if (detail::is_checkpoint_name(lost) && !is_complete(lost)
                    && std::filesystem::is_regular_file(path / Manifest::file)) {
                    // A process died between the two renames of `exchange_or_rename`.
                    std::filesystem::rename(path, _directory / lost);
                    continue;
                }
            }
            std::filesystem::remove_all(path);
        }
        std::filesystem::create_directory(folder);
    });
}

ZERO_COLD_INLINE void CheckpointDirectory::publish(std::string const& name) const {
    auto const from = incomplete(name);
    auto const to = path(name);
    if (!detail::on_file_system(
            [&] { return std::filesystem::is_regular_file(from / Manifest::file); })) {
        detail::throw_error<CheckpointError>(
            {"zero: '", from.string(), "' has no manifest, so it cannot be published."});
    }
    detail::sync_folder(from);
    detail::on_file_system([&] {
        auto const aside = _directory / (detail::replaced_prefix + name);
        detail::exchange_or_rename(from, to, aside);
        detail::sync_folder(_directory);
        auto const next =
            _directory / (std::string(detail::incomplete_prefix) + detail::latest_file);
        std::filesystem::remove(next);
        detail::write_text(next, name + "\n");
        std::filesystem::rename(next, _directory / detail::latest_file);
        detail::sync_folder(_directory);
        std::filesystem::remove_all(from); // after an exchange: the replaced checkpoint
        std::filesystem::remove_all(aside);
    });
}

ZERO_COLD_INLINE bool CheckpointDirectory::is_complete(std::string const& name) const {
    if (!detail::is_checkpoint_name(name)) {
        return false;
    }
    auto const manifest = _directory / name / Manifest::file;
    std::error_code error;
    auto const status = std::filesystem::status(manifest, error);
    if (status.type() == std::filesystem::file_type::none
        && error != std::errc::permission_denied) { // for example 'lost+found'
        throw std::filesystem::filesystem_error("cannot look for a checkpoint", manifest, error);
    }
    return std::filesystem::is_regular_file(status);
}

ZERO_COLD_INLINE std::vector<std::string> CheckpointDirectory::complete() const {
    using Time = std::filesystem::file_time_type;
    std::vector<std::pair<Time, std::string>> found;
    return detail::on_file_system([&] {
        if (std::filesystem::exists(_directory)) {
            for (auto const& entry : std::filesystem::directory_iterator(_directory)) {
                std::string const name = entry.path().filename().string();
                if (is_complete(name)) {
                    found.emplace_back(
                        std::filesystem::last_write_time(entry.path() / Manifest::file), name);
                }
            }
        }
        std::sort(found.begin(), found.end());
        std::vector<std::string> names;
        names.reserve(found.size());
        for (auto& [time, name] : found) {
            names.push_back(std::move(name));
        }
        return names;
    });
}

ZERO_COLD_INLINE std::optional<std::string> CheckpointDirectory::latest() const {
    auto const file = _directory / detail::latest_file;
    std::string name;
    if (detail::on_file_system([&] { return std::filesystem::exists(file); })) {
        name = detail::read_text(file, 4096);
        while (!name.empty() && name.back() == '\n') {
            name.pop_back();
        }
        if (detail::on_file_system([&] { return is_complete(name); })) {
            return name;
        }
    }
    auto names = complete();
    if (!names.empty()) {
        return std::move(names.back());
    }
    // An incomplete copy must not make a program start from scratch.
    if (detail::is_checkpoint_name(name)
        && detail::on_file_system([&] { return std::filesystem::exists(_directory / name); })) {
        detail::throw_error<CheckpointError>(
            {"zero: '", file.string(), "' names the checkpoint '", name, "', which has no ",
             Manifest::file,
             ": it was copied or removed in part. Copy it again, or remove it to "
             "start without a checkpoint."});
    }
    return std::nullopt;
}

ZERO_COLD_INLINE void CheckpointDirectory::keep_last(std::size_t count) const {
    auto const names = complete();
    auto const newest = latest();
    for (std::size_t index = 0; index + count < names.size(); ++index) {
        if (names[index] != newest) {
            detail::on_file_system([&] {
                // Under this name it is no longer a checkpoint, even if the removal is interrupted.
                auto const aside = _directory / (detail::removed_prefix + names[index]);
                std::filesystem::rename(_directory / names[index], aside);
                std::filesystem::remove_all(aside);
            });
        }
    }
}

} // namespace ZERO_NAMESPACE
