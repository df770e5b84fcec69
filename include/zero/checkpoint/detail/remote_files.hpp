#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../stage/detail/common/gather_on_host.hpp"
#include "../checkpoint_error.hpp"
#include "../safetensors_reader.hpp"
#include "file.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the size of a file; 0 if it is not there.
[[nodiscard]] inline std::uint64_t size_of(std::filesystem::path const& file) {
    std::error_code error;
    std::uint64_t const bytes = std::filesystem::file_size(file, error);
    return error ? 0 : bytes;
}

/// @brief The files of one checkpoint on disks that ranks do not share. `on_files` reads them.
///
/// What this rank's disk lacks comes in pieces of 1 MiB: the thread of `on_files` asks for one and
/// waits. When ranks meet, the rank that has it broadcasts it, once for all that have asked.
/// Memory: eight pieces, and three while one is sent.
class RemoteFiles {
public:
    /// A file. All but `is_here` is equal on every rank.
    struct Place {
        std::string name;
        std::size_t rank = 0;    ///< the rank that sends it
        std::uint64_t bytes = 0; ///< 0: no disk has it
        bool is_here = false;    ///< it is read from this rank's disk
    };

    /// @brief Adds files with the bytes that this rank has of each, 0: none. Collective; waits.
    template <class Access>
    void add(Access const& access, std::vector<std::string> const& names,
             std::vector<std::uint64_t> const& bytes);

    /// @brief Opens a file, for the work of `on_files` with this object.
    [[nodiscard]] File open(std::size_t number) {
        Place const& place = places[number];
        if (place.is_here) {
            return File::open(folder / place.name);
        }
        return File::read_by(text({place.name, " on the disk of rank ", place.rank}), place.bytes,
                             [this, number](std::uint64_t offset, std::span<std::byte> into) {
                                 read(number, offset, into);
                             });
    }

    /// @brief Lets the work ask from now on. @see end
    void begin() {
        std::lock_guard const lock(_mutex);
        _meets_on = std::this_thread::get_id();
        _is_open = true;
    }

    /// @brief Refuses what the work asks for from now on, so that it never waits in vain.
    void end() noexcept {
        std::lock_guard const lock(_mutex);
        _is_open = false;
        _wanted.reset();
        _answered.notify_all();
    }

    /// @brief Sends what ranks have asked for. Collective; waits.
    /// @return whether any has
    template <class Access>
    bool meet(Access const& access);

    std::filesystem::path folder; ///< on this rank's disk
    std::vector<Place> places;    ///< of the files, by number

private:
    /// A piece of a file, by its number.
    struct Piece {
        std::uint64_t file = 0;
        std::uint64_t number = 0;
        auto operator<=>(Piece const&) const = default;
    };

    static constexpr std::size_t piece_size = std::size_t{1} << 20U;
    static constexpr unsigned piece_bits = 40; ///< of the number of a piece, in a number for both

    [[nodiscard]] std::size_t bytes_of(Piece piece) const noexcept {
        return static_cast<std::size_t>(
            smaller<std::uint64_t>(piece_size, places[static_cast<std::size_t>(piece.file)].bytes
                                                   - piece.number * piece_size));
    }
    void read(std::size_t file, std::uint64_t offset, std::span<std::byte> into);
    void ask(Piece piece, std::span<std::byte> into);
    [[nodiscard]] std::vector<std::uint64_t> message(Piece piece, bool sends) const;
    void answer(Piece piece, std::vector<std::uint64_t> const& words);

    KeptBlocks _kept; ///< of the thread
    std::mutex _mutex;
    std::condition_variable _answered;
    std::thread::id _meets_on;
    bool _is_open = false;
    std::optional<Piece> _wanted; ///< by the thread
    std::span<std::byte> _into;   ///< of the thread
    std::string _problem;         ///< of the last answer
};

/// Reads a part of a file of another rank, piece by piece. Memory that the pieces pass through
/// keeps the last ones, because a reader alternates between data and its checksums.
[[gnu::cold]] inline void RemoteFiles::read(std::size_t file, std::uint64_t offset,
                                            std::span<std::byte> into) {
    while (!into.empty()) {
        Piece const piece{file, offset / piece_size};
        auto const kept = _kept.get(piece.file << piece_bits | piece.number, bytes_of(piece),
                                    [&](std::span<std::byte> all) { ask(piece, all); });
        auto const part = kept.subspan(static_cast<std::size_t>(offset % piece_size));
        std::size_t const count = smaller(part.size(), into.size());
        std::copy_n(part.begin(), count, into.begin());
        offset += count;
        into = into.subspan(count);
    }
}

[[gnu::cold]] inline void RemoteFiles::ask(Piece piece, std::span<std::byte> into) {
    std::unique_lock lock(_mutex);
    if (_is_open && _meets_on != std::this_thread::get_id()) {
        _wanted = piece;
        _into = into;
        _answered.wait(lock, [&] { return !_wanted; });
    } else {
        _is_open = false; // the system had no thread
    }
    if (!_is_open || !_problem.empty()) {
        Place const& place = places[static_cast<std::size_t>(piece.file)];
        throw_error<CheckpointError>(
            {"zero: rank ", place.rank, " did not send '", place.name, "' from its disk. ",
             _is_open ? std::exchange(_problem, {}) : "The ranks no longer meet."});
    }
}

/// Returns what is sent of a piece: whether it was read, and its bytes or the reason.
[[gnu::cold]] inline std::vector<std::uint64_t> RemoteFiles::message(Piece piece,
                                                                     bool sends) const {
    constexpr std::size_t least = 32;
    std::size_t const bytes = bytes_of(piece);
    std::vector<std::uint64_t> words(1 + larger((bytes + 7) / 8, least), 0);
    if (sends) {
        auto const content = std::as_writable_bytes(std::span(words).subspan(1));
        try {
            File const file =
                File::open(folder / places[static_cast<std::size_t>(piece.file)].name);
            file.read_at(piece.number * piece_size, content.first(bytes));
            words[0] = 1;
        } catch (std::exception const& error) {
            std::string_view const why = first_line(error.what());
            std::memcpy(content.data(), why.data(), smaller(why.size(), 8 * least - 1));
        }
    }
    return words;
}

[[gnu::cold]] inline void RemoteFiles::answer(Piece piece,
                                              std::vector<std::uint64_t> const& words) {
    std::lock_guard const lock(_mutex);
    if (_wanted != piece) {
        return;
    }
    if (words[0] != 0) {
        std::memcpy(_into.data(), words.data() + 1, _into.size());
    } else {
        _problem = reinterpret_cast<char const*>(words.data() + 1); // ends with 0
    }
    _wanted.reset();
    _answered.notify_all();
}

template <class Access>
[[gnu::cold]] void RemoteFiles::add(Access const& access, std::vector<std::string> const& names,
                                    std::vector<std::uint64_t> const& bytes) {
    std::vector<std::uint64_t> all; // by rank
    access.guard([&] { all = gather_on_host(access, bytes, "sizes of files"); });
    for (std::size_t file = 0; file < names.size(); ++file) {
        std::size_t at = file; // the first rank that has it
        while (at + names.size() < all.size() && all[at] == 0) {
            at += names.size();
        }
        places.push_back({names[file], at / names.size(), all[at], bytes[file] != 0});
    }
}

template <class Access>
[[gnu::cold]] bool RemoteFiles::meet(Access const& access) {
    std::vector<std::uint64_t> own(2, 0); // 0: nothing
    {
        std::lock_guard const lock(_mutex);
        if (_wanted) {
            own = {_wanted->file + 1, _wanted->number};
        }
    }
    std::set<Piece> all;
    access.guard([&] {
        auto const wanted = gather_on_host(access, own, "pieces of files that ranks lack");
        for (std::size_t rank = 0; 2 * rank < wanted.size(); ++rank) {
            if (wanted[2 * rank] != 0) {
                all.insert({wanted[2 * rank] - 1, wanted[2 * rank + 1]});
            }
        }
        for (Piece const& piece : all) {
            std::size_t const sender = places[static_cast<std::size_t>(piece.file)].rank;
            auto const words = message(piece, access.rank() == sender);
            answer(piece,
                   through_backend(access.communicator(), access.queue(), access.memory(), words, 0,
                                   words.size(), [&](std::uint64_t* buffer, std::uint64_t*) {
                                       access.communicator().broadcast(
                                           buffer, words.size(), static_cast<int>(sender),
                                           access.queue(), CollectiveTag{"piece of a file", 0});
                                   }));
        }
    });
    return !all.empty();
}

} // namespace ZERO_NAMESPACE::detail
