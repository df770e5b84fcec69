#pragma once

#include "../../comm/grouped_communicator.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/hash.hpp"
#include "../../stage/detail/common/gather_on_host.hpp"
#include "../../stage/detail/registration/compared_options.hpp"
#include "../../stage/detail/state/gather_checks.hpp"
#include "../checkpoint_error.hpp"
#include "remote_files.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Runs a function on the thread that waits for the work, and returns after it. For calls to
/// a device, which is current for that thread alone.
using OnCaller = FunctionRef<FunctionRef<>>;

/// @brief Runs work that waits for files on a thread of its own. `on_files` uses it.
class FileThread {
public:
    /// @brief Starts the work, or does it here if the system has no thread.
    /// @param work must not throw, and must outlive this object
    explicit FileThread(FunctionRef<OnCaller> work) {
        try {
            _thread = std::thread([this, work] {
                work([this](FunctionRef<> call) { ask(call); });
                {
                    std::lock_guard const lock(_mutex);
                    _is_done = true;
                }
                _changed.notify_one();
            });
        } catch (std::exception const&) {
            work([](FunctionRef<> call) { call(); });
            _is_done = true;
        }
    }
    FileThread(FileThread const&) = delete;
    FileThread& operator=(FileThread const&) = delete;

    /// @brief Waits until the work is done.
    ~FileThread() {
        while (!wait_for(std::chrono::hours(1))) {}
        if (_thread.joinable()) {
            _thread.join();
        }
    }

    /// @brief Waits for the work and makes its calls. Returns whether it is done.
    [[nodiscard]] bool wait_for(std::chrono::milliseconds time) {
        auto const end = std::chrono::steady_clock::now() + time;
        auto const is_changed = [&] { return _is_done || _asked; };
        std::unique_lock lock(_mutex);
        while (_changed.wait_until(lock, end, is_changed) && !_is_done) {
            lock.unlock();
            try {
                _asked();
            } catch (...) {
                _failure = std::current_exception();
            }
            lock.lock();
            _asked = {};
            _answered.notify_one();
            if (std::chrono::steady_clock::now() >= end) {
                break;
            }
        }
        return _is_done;
    }

private:
    void ask(FunctionRef<> call) {
        std::unique_lock lock(_mutex);
        _asked = call;
        _changed.notify_one();
        _answered.wait(lock, [&] { return !_asked; });
        if (_failure) {
            std::rethrow_exception(std::exchange(_failure, nullptr));
        }
    }

    std::mutex _mutex;
    std::condition_variable _changed;
    std::condition_variable _answered;
    bool _is_done = false;
    FunctionRef<> _asked{};      ///< by the work; empty: nothing
    std::exception_ptr _failure; ///< of the last call
    std::thread _thread;
};

/// @brief Returns the first line of a text of each rank, at most 255 bytes of it. Collective;
/// waits.
template <class Access>
[[gnu::cold]] [[nodiscard]] std::vector<std::string>
gather_texts(Access const& access, std::string_view own, char const* what) {
    constexpr std::size_t words = 32;
    std::vector<std::uint64_t> send(words);
    std::string_view const line = first_line(own).substr(0, words * sizeof(std::uint64_t) - 1);
    if (!line.empty()) {
        std::memcpy(send.data(), line.data(), line.size());
    }
    std::vector<std::string> texts;
    access.guard([&] {
        auto const all = gather_on_host(access, send, what);
        for (std::size_t begin = 0; begin < all.size(); begin += words) {
            texts.emplace_back(reinterpret_cast<char const*>(all.data() + begin)); // ends with 0
        }
    });
    return texts;
}

/// @brief Requires that ranks that hold the parts of a model write to different places, because
/// checkpoints in one folder replace each other. Collective over them; waits. A no-op for other
/// communicators.
/// @throws InvalidArgument on every model rank
template <class Access>
[[gnu::cold]] void require_own_path([[maybe_unused]] Access const& access,
                                    [[maybe_unused]] std::filesystem::path const& place) {
    if constexpr (ModelParallelCommunicator<typename Access::Communicator>) {
        std::error_code ignored; // then the path as it was given
        std::string const path =
            std::filesystem::absolute(place, ignored).lexically_normal().string();
        std::vector<std::uint64_t> paths;
        access.guard([&] {
            gather_over(access.communicator().model(), access.queue(), access.memory())(
                {Hash().add(std::string_view(path)).value()}, "paths of model ranks", paths);
        });
        for (std::size_t rank = 0; rank < paths.size(); ++rank) {
            for (std::size_t other = 0; other < rank; ++other) {
                if (paths[other] == paths[rank]) {
                    throw_error<InvalidArgument>(
                        {"zero: model ranks ", other, " and ", rank,
                         " would write to one place; add the number of the model rank to the path "
                         "(this rank's is ",
                         path, ")."});
                }
            }
        }
    }
}

/// @brief How a call ended on this rank.
struct RankOutcome {
    std::exception_ptr failure{};
    std::string text{}; ///< of the failure
    std::uint64_t value = 0;

    /// @brief Calls `run()`, and keeps what it throws.
    void call(FunctionRef<> run) {
        try {
            run();
        } catch (std::exception const& error) {
            failure = std::current_exception();
            text = error.what();
        } catch (...) {
            failure = std::current_exception();
            text = "an exception that is not a std::exception";
        }
    }
};

/// @brief The state of a call on a rank, as ranks exchange it.
enum class RankState : std::uint8_t { busy, succeeded, failed };

/// @brief Returns the numbers of all ranks if all have succeeded, and throws on all of them
/// otherwise. Collective.
/// @param all the result of `exchange_states`
template <class Access>
std::vector<std::uint64_t> agree(Access const& access, char const* what, RankOutcome const& own,
                                 std::vector<std::uint64_t> const& all) {
    std::vector<std::uint64_t> values;
    std::size_t failed = all.size();
    for (std::size_t rank = 0; 3 * rank < all.size(); ++rank) {
        if (all[3 * rank] == static_cast<std::uint64_t>(RankState::failed)) {
            failed = smaller(failed, rank);
        }
        values.push_back(all[3 * rank + 1]);
    }
    if (failed == all.size()) {
        return values;
    }
    auto const texts = gather_texts(access, own.text, what);
    if (own.failure) {
        std::rethrow_exception(own.failure);
    }
    throw_error<CheckpointError>({"zero: rank ", failed, " could not ", what,
                                  ", so the call failed on every rank (rank ", access.rank(),
                                  "). Its error is: ", texts[failed]});
}

/// @brief Exchanges three numbers of each rank: the state of its call, the number that the call
/// returned, and `word`. Collective.
template <class Access>
std::vector<std::uint64_t> exchange_states(Access const& access, char const* what, RankState state,
                                           std::uint64_t value, std::uint64_t word) {
    std::vector<std::uint64_t> all;
    access.guard([&] {
        all = gather_on_host(access, {static_cast<std::uint64_t>(state), value, word}, what);
    });
    return all;
}

/// @brief Runs `run()` on this rank and then learns whether it succeeded on all. Collective; waits.
///
/// An exception of `run` does not break the engine. It is rethrown on its rank, and the others
/// throw a CheckpointError with its first line.
/// @param what completes "rank 3 could not ..."
/// @return the number that `run` returned on each rank
template <class Access, class Run>
std::vector<std::uint64_t> on_every_rank(Access const& access, char const* what, Run&& run) {
    RankOutcome own;
    own.call([&] { own.value = run(); });
    return agree(access, what, own,
                 exchange_states(access, what,
                                 own.failure ? RankState::failed : RankState::succeeded, own.value,
                                 0));
}

/// @brief Requires that options of a call are equal on all ranks. Collective; waits.
/// @throws InvalidArgument on every rank, naming them; nothing was changed
template <class Access>
[[gnu::cold]] void require_same_options(Access const& access, char const* call,
                                        List<ComparedOption> const& options) {
    std::vector<std::uint64_t> own;
    for (ComparedOption const& option : options) {
        own.push_back(option.hash);
    }
    std::vector<std::uint64_t> all;
    access.guard([&] { all = gather_on_host(access, own, call); });
    if (std::size_t const other = first_difference(all, own.size()).rank; other != 0) {
        auto const of_rank = [&](std::size_t rank) {
            return as_span(all).subspan(rank * own.size(), own.size());
        };
        throw_error<InvalidArgument>(
            {"zero: ", call, ": ranks 0 and ", other,
             " have different options: ", name_differences(options, of_rank(0), of_rank(other)),
             "; give all ranks the same (rank ", access.rank(), ")."});
    }
}

/// @brief Does what `on_files` says, for a `run` that writes its number to `value`: once for all
/// work on an engine, which has a dozen kinds.
template <class Access>
std::vector<std::uint64_t> wait_for_files(Access const& access, char const* what,
                                          FunctionRef<OnCaller> run, std::uint64_t const& value,
                                          std::chrono::milliseconds limit, RemoteFiles* remote) {
    auto const here = [](FunctionRef<> call) { call(); };
    auto const checked = [&](OnCaller on_caller) {
        if (limit.count() <= 0) {
            throw_error<InvalidArgument>({"zero: file_time_out must be positive, and is ",
                                          limit.count(), " ms on rank ", access.rank(),
                                          ". Give the longest time that a rank may need for its "
                                          "file."});
        }
        run(on_caller);
        return value;
    };
    if (access.communicator().size() == 1) {
        return on_every_rank(access, what, [&] { return checked(here); });
    }
    constexpr std::chrono::milliseconds longest{100};
    bool const has_remote = remote != nullptr && !remote->places.empty();
    std::chrono::milliseconds between_meetings =
        has_remote ? std::chrono::milliseconds(1) : longest;
    auto const start = std::chrono::steady_clock::now();
    RankOutcome own; // the thread's until it is done
    std::vector<std::uint64_t> all;
    auto const work = [&](OnCaller on_caller) {
        constexpr bool is_device = requires { requires Access::Backend::is_device; };
        own.call([&] { own.value = checked(is_device ? on_caller : OnCaller(here)); });
    };
    if (has_remote) {
        remote->begin();
    }
    {
        FileThread thread(work);
        struct End {
            RemoteFiles* remote;
            ~End() { // also after an exception, since the thread may wait for a file
                if (remote != nullptr) {
                    remote->end();
                }
            }
        } const end{has_remote ? remote : nullptr};
        for (bool is_busy = true; is_busy;) {
            bool const is_done = thread.wait_for(between_meetings);
            bool const is_over =
                limit.count() > 0 && std::chrono::steady_clock::now() - start > limit;
            all = exchange_states(access, what,
                                  !is_done      ? RankState::busy
                                  : own.failure ? RankState::failed
                                                : RankState::succeeded,
                                  is_done ? own.value : 0, is_over ? 1 : 0);
            std::size_t rank = 0;
            while (3 * rank < all.size()
                   && all[3 * rank] != static_cast<std::uint64_t>(RankState::busy)) {
                ++rank;
            }
            is_busy = 3 * rank < all.size();
            if (is_busy && all[2] != 0) { // rank 0 decides for all
                throw_error<CheckpointError>(
                    {"zero: rank ", rank, " did not ", what, " within ", limit.count(),
                     " ms, so the call failed on every rank (rank ", access.rank(),
                     "). Look whether its file system hangs; a larger file_time_out gives it "
                     "more time."});
            }
            if (is_busy && has_remote) {
                between_meetings = remote->meet(access) ? std::chrono::milliseconds(1)
                                                        : smaller(2 * between_meetings, longest);
            }
        }
    }
    return agree(access, what, own, all);
}

/// @brief The same for calls that wait for files, for instance until they are durable. While one
/// rank waits, all ranks meet at short intervals, so that none waits in a collective for long.
///
/// `run(on_caller)` is called on a thread of its own, so it must not use the communicator, and
/// calls a device through `on_caller` only. On a single rank it is called here.
/// @param limit the longest wait; that of rank 0 counts
/// @param remote files on disks of other ranks that `run` may read: the same on every rank
/// @throws CheckpointError on every rank when it is over, as soon as the call of this rank has
/// ended; InvalidArgument if it is not positive
template <class Access, class Run>
std::vector<std::uint64_t> on_files(Access const& access, char const* what, Run&& run,
                                    std::chrono::milliseconds limit,
                                    RemoteFiles* remote = nullptr) {
    std::uint64_t value = 0;
    return wait_for_files(
        access, what, [&](OnCaller on_caller) { value = run(on_caller); }, value, limit, remote);
}

/// @brief Returns the text of rank 0. Collective; waits.
template <class Access>
[[nodiscard]] std::string broadcast_text(Access const& access, std::string const& own,
                                         char const* what) {
    auto const send = [&](std::vector<std::uint64_t> const& values) {
        return broadcast_on_host(access.communicator(), access.queue(), access.memory(), values,
                                 engine_tag(access.layout(), what));
    };
    std::string all;
    access.guard([&] {
        std::vector<std::uint64_t> characters(static_cast<std::size_t>(send({own.size()})[0]));
        for (std::size_t i = 0; i < characters.size() && i < own.size(); ++i) {
            characters[i] = static_cast<unsigned char>(own[i]);
        }
        if (!characters.empty()) {
            for (std::uint64_t const character : send(characters)) {
                all += static_cast<char>(character);
            }
        }
    });
    return all;
}

} // namespace ZERO_NAMESPACE::detail
