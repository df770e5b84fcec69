#pragma once

#include "../checkpoint_directory.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../checkpoint_error.hpp"
#include "../manifest.hpp"
#include "file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <tuple>
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
           && name.find_first_of(std::string_view("/\0\n\r", 4)) == std::string::npos
           && name != latest_file;
}

/// Reports a file that does no harm but could not be removed or renamed.
ZERO_COLD_INLINE void warn_about(std::filesystem::path const& path, char const* what,
                                 std::error_code const& error) {
    if (error) {
        std::fprintf(stderr,
                     "zero: warning: '%s' could not be %s (%s). Checkpoints are saved all the "
                     "same; remove it by hand.\n",
                     path.c_str(), what, error.message().c_str());
    }
}

ZERO_COLD_INLINE void remove_or_warn(std::filesystem::path const& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    warn_about(path, "removed", error);
}

/// Returns a name to which a folder is renamed before it is removed.
ZERO_COLD_INLINE std::filesystem::path free_removed_name(std::filesystem::path const& directory,
                                                         std::string const& name) {
    auto const first = directory / (removed_prefix + name);
    auto free = first;
    for (std::size_t number = 1; std::filesystem::exists(std::filesystem::symlink_status(free));
         ++number) {
        free = first.string() + "~" + std::to_string(number);
    }
    return free;
}

/// Returns where the number at the end of a name begins; its size if there is none.
ZERO_COLD_INLINE std::size_t number_begin(std::string_view name) noexcept {
    return name.find_last_not_of("0123456789") + 1; // npos + 1 is 0
}

/// Returns that number without leading zeros; empty if there is none.
ZERO_COLD_INLINE std::string_view number_of(std::string_view name) noexcept {
    std::string_view digits = name.substr(number_begin(name));
    while (digits.size() > 1 && digits.front() == '0') {
        digits.remove_prefix(1);
    }
    return digits;
}

/// Returns a key that orders names by their numbers.
ZERO_COLD_INLINE std::pair<std::size_t, std::string_view> order_of(std::string_view name) noexcept {
    std::string_view const number = number_of(name);
    return {number.size(), number};
}

/// Returns a text with its control characters as numbers.
ZERO_COLD_INLINE std::string visible(std::string const& content) {
    std::string all;
    for (char const c : content) {
        auto const code = static_cast<unsigned char>(c);
        if (code < 0x20 || code == 0x7f) {
            constexpr char const* digits = "0123456789abcdef";
            all.append("\\x").append(1, digits[code / 16]).append(1, digits[code % 16]);
        } else {
            all += c;
        }
    }
    return all;
}

/// A longer list of checkpoints begins with the number of the older ones.
inline constexpr std::size_t listed_checkpoints = 10;

ZERO_COLD_INLINE std::string list_of(std::vector<std::string> const& names) {
    std::size_t index = names.size() - smaller(names.size(), listed_checkpoints);
    std::string list = index == 0 ? "" : text({index, " older ones"});
    for (; index < names.size(); ++index) {
        list += text({list.empty() ? "'" : ", '", names[index], "'"});
    }
    return list.empty() ? "none" : list;
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
        detail::throw_error<CheckpointError>({"zero: '", detail::visible(name),
                                              "' cannot name a checkpoint; use at most 200 bytes "
                                              "without '/' and line breaks that do "
                                              "not begin with '.' and are not 'latest'."});
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
            if (detail::FolderLock::is_held(path)) {
                if (path != folder) {
                    continue; // of another save that runs
                }
                detail::throw_error<CheckpointError>(
                    {"zero: the checkpoint '", name, "' is being written in '", _directory.string(),
                     "' by another save, of this process (CheckpointSaver::wait() completes it) or "
                     "of another one; wait for it, or choose another name or directory."});
            }
            if (found.starts_with(detail::replaced_prefix)) {
                std::string const lost =
                    found.substr(std::string_view(detail::replaced_prefix).size());
                if (detail::is_checkpoint_name(lost) && !is_complete(lost)
                    && std::filesystem::is_regular_file(path / Manifest::file)) {
                    // A process died between the two renames of `exchange_or_rename`.
                    std::error_code error;
                    std::filesystem::rename(path, _directory / lost, error);
                    detail::warn_about(path, "renamed", error);
                    continue;
                }
            }
            if (path == folder) { // its name is needed, even if its files cannot be removed
                auto const aside = detail::free_removed_name(_directory, name);
                std::filesystem::rename(path, aside);
                detail::remove_or_warn(aside);
                continue;
            }
            detail::remove_or_warn(path);
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
    bool const is_latest = is_newest(name);
    detail::on_file_system([&] {
        auto const aside = _directory / (detail::replaced_prefix + name);
        detail::exchange_or_rename(from, to, aside);
        detail::sync_folder(_directory);
        try {
            if (is_latest) {
                auto const next =
                    _directory / (std::string(detail::incomplete_prefix) + detail::latest_file);
                std::filesystem::remove(next);
                detail::write_text(next, name + "\n");
                std::filesystem::rename(next, _directory / detail::latest_file);
                detail::sync_folder(_directory);
            }
        } catch (std::exception const& error) {
            detail::throw_error<CheckpointError>({"zero: the checkpoint '", name,
                                                  "' is complete in '", _directory.string(),
                                                  "', but the file '", detail::latest_file,
                                                  "' could not name it; load it by its "
                                                  "name (LoadOptions::name). The cause: ",
                                                  error.what()});
        }
        detail::remove_or_warn(from); // after an exchange: the replaced checkpoint
        detail::remove_or_warn(aside);
    });
}

ZERO_COLD_INLINE bool CheckpointDirectory::is_newest(std::string const& name) const {
    auto const steps = [](std::filesystem::path const& folder) {
        return detail::read_manifest(folder, detail::drop_intervals)
            .scalars.counts.at("step_count");
    };
    try {
        auto const before = latest();
        return !before || *before == name || steps(path(*before)) <= steps(incomplete(name));
    } catch (std::exception const&) { // what cannot be read or loaded is not kept
        return true;
    }
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
    struct Found {
        std::string name;
        std::filesystem::file_time_type time{}; ///< of a name without a number
    };
    std::vector<Found> found;
    return detail::on_file_system([&] {
        if (std::filesystem::exists(_directory)) {
            for (auto const& entry : std::filesystem::directory_iterator(_directory)) {
                std::string name = entry.path().filename().string();
                if (is_complete(name)) {
                    found.push_back({std::move(name), {}});
                    if (detail::number_of(found.back().name).empty()) {
                        found.back().time =
                            std::filesystem::last_write_time(entry.path() / Manifest::file);
                    }
                }
            }
        }
        std::sort(found.begin(), found.end(), [](Found const& a, Found const& b) {
            auto const key = [](Found const& one) {
                return std::tuple(detail::order_of(one.name), one.time, std::string_view(one.name));
            };
            return key(a) < key(b);
        });
        std::vector<std::string> names;
        names.reserve(found.size());
        for (Found& one : found) {
            names.push_back(std::move(one.name));
        }
        return names;
    });
}

ZERO_COLD_INLINE std::filesystem::path
CheckpointDirectory::complete_path(std::string const& name) const {
    auto folder = path(name);
    if (!detail::on_file_system([&] { return is_complete(name); })) {
        bool const is_there =
            detail::on_file_system([&] { return std::filesystem::exists(folder); });
        detail::throw_error<CheckpointError>(
            {"zero: the checkpoint '", name, "' in '", _directory.string(),
             is_there ? "' has no " : "' does not exist", is_there ? Manifest::file : "",
             ". Complete checkpoints there: ", detail::list_of(complete()), "."});
    }
    return folder;
}

ZERO_COLD_INLINE std::optional<std::string> CheckpointDirectory::latest() const {
    auto const file = _directory / detail::latest_file;
    auto names = complete();
    if (!detail::on_file_system([&] { return std::filesystem::exists(file); })) {
        return names.empty() ? std::nullopt : std::optional(std::move(names.back()));
    }
    std::string name = detail::read_text(file, 4096);
    while (!name.empty() && name.back() == '\n') {
        name.pop_back();
    }
    if (detail::on_file_system([&] { return is_complete(name); })) {
        return name;
    }
    bool const is_there = detail::is_checkpoint_name(name) && detail::on_file_system([&] {
                              return std::filesystem::exists(_directory / name);
                          });
    if (names.empty() && !is_there) {
        return std::nullopt; // all were removed
    }
    // A program must not start from scratch, or from another checkpoint, without noticing it.
    detail::throw_error<CheckpointError>(
        {"zero: '", file.string(), "' names the checkpoint '", detail::visible(name), "', which ",
         is_there ? detail::text({"has no ", Manifest::file,
                                  ": it was copied or removed in part. Copy "
                                  "it again, or remove it and name another. "})
                  : std::string("does not exist. "),
         "Complete checkpoints there: ", detail::list_of(names),
         ". Write the name of one into that file, or remove the file to use the last of the "
         "list."});
}

ZERO_COLD_INLINE void CheckpointDirectory::remove_beyond(std::size_t count, std::string const& name,
                                                         bool counts_later) const {
    std::string_view const series = std::string_view(name).substr(0, detail::number_begin(name));
    std::vector<std::string> own;
    if (series != name) { // a name without a number is one of a kind
        for (std::string& found : complete()) {
            std::size_t const begin = detail::number_begin(found);
            if (begin != found.size() && std::string_view(found).substr(0, begin) == series
                && (counts_later || detail::order_of(found) <= detail::order_of(name))) {
                own.push_back(std::move(found));
            }
        }
    }
    if (own.size() <= count) {
        return;
    }
    auto const newest = latest();
    for (std::size_t index = 0; index + count < own.size(); ++index) {
        if (own[index] != newest && (counts_later || own[index] != name)) {
            // Under this name it is no longer a checkpoint, even if the removal is interrupted.
            auto const aside = detail::free_removed_name(_directory, own[index]);
            std::error_code error;
            std::filesystem::rename(_directory / own[index], aside, error);
            if (error) {
                detail::warn_about(_directory / own[index], "removed", error);
            } else {
                detail::remove_or_warn(aside);
            }
        }
    }
}

} // namespace ZERO_NAMESPACE
