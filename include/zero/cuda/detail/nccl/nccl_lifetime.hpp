#pragma once

#include "../../../comm/detail/collective_call.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/source_location.hpp"
#include "../../nccl_error.hpp"
#include "../../nccl_library.hpp"
#include "../../nccl_options.hpp"
#include "../../nccl_system.hpp"
#include "nccl_abort_cause.hpp"
#include "nccl_flights.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns the options with unlimited waits replaced by a year, so that the clock can
/// represent their ends.
inline NcclOptions with_finite_waits(NcclOptions options) noexcept {
    constexpr std::chrono::milliseconds year = std::chrono::hours(24 * 365);
    options.time_out = std::min(options.time_out, year);
    options.finish_time_out = std::min(options.finish_time_out, year);
    options.watch_interval = std::min(options.watch_interval, year);
    return options;
}

/// @brief Calls `body()` on a thread of its own and returns its result, or nothing if it takes
/// longer than `limit`.
///
/// It bounds calls of a blocking NCCL that nothing else ends. A thread that takes longer is left to
/// itself and owns all that it uses, except NCCL and the system. Its late result goes to `discard`,
/// which must not throw.
/// @throws whatever `body` throws in time
template <class Body, class Discard>
auto run_within(NcclInterface interfaces, int device, NcclSystem::Duration limit, Body body,
                Discard discard) -> std::optional<std::invoke_result_t<Body&>> {
    struct Run {
        Body body;
        Discard discard;
        std::optional<std::invoke_result_t<Body&>> result;
        std::exception_ptr failure;
        ~Run() {
            if (result) {
                discard(*result);
            }
        }
    };
    // Shared, because either thread may be the last to use it.
    std::shared_ptr<Run> const run(new Run{std::move(body), std::move(discard), {}, {}});
    auto share = std::make_unique<std::shared_ptr<Run>>(run);
    auto const work = [](NcclLibrary&, NcclHandle shared) {
        std::unique_ptr<std::shared_ptr<Run>> const own(static_cast<std::shared_ptr<Run>*>(shared));
        try {
            (*own)->result.emplace((*own)->body());
        } catch (...) {
            (*own)->failure = std::current_exception();
        }
    };
    if (!interfaces.system->run_bounded(device, work, *interfaces.nccl, share.release(), limit)) {
        return std::nullopt;
    }
    if (run->failure != nullptr) {
        std::rethrow_exception(run->failure);
    }
    return std::exchange(run->result, std::nullopt);
}

/// @brief Aborts a handle, which frees it. NCCL's abort ends the kernels at once, but then waits
/// without limit for CUDA graphs that hold collectives and for peers on this machine that have not
/// aborted.
inline void abort_bounded(NcclInterface interfaces, int device, NcclHandle handle) noexcept {
    interfaces.system->run_bounded(
        device, [](NcclLibrary& nccl, NcclHandle released) { nccl.abort(released); },
        *interfaces.nccl, handle, std::chrono::seconds(5));
}

/// @param what what the rank waited for, and where
[[noreturn]] inline void throw_waited(NcclSystem::Duration time_out, std::string_view what) {
    zero::detail::throw_error<TimedOut>(
        {"zero: waited ", time_out.count(), " ms for ", what,
         "; every rank must call the same collectives, or raise cuda::NcclOptions::time_out."});
}

/// @brief Owns a thread that calls a function at an interval until it is destroyed.
class NcclWatchdog {
public:
    using Duration = NcclSystem::Duration;

    ~NcclWatchdog() { stop(); }

    /// @param device the device of the thread: on another one, the queries would create a CUDA
    /// context there
    void start(NcclSystem& system, int device, Duration interval, void (*look)(void*),
               void* argument) {
        _thread = std::thread([this, &system, device, interval, look, argument] {
            // A failure is ignored: it recurs in a call that can report it.
            static_cast<void>(system.set_device(device));
            std::unique_lock lock(_mutex);
            while (!_wake.wait_for(lock, interval, [this] { return _is_stopping; })) {
                lock.unlock();
                look(argument);
                lock.lock();
            }
        });
    }

    void stop() noexcept {
        if (!_thread.joinable()) {
            return;
        }
        {
            std::lock_guard const lock(_mutex);
            _is_stopping = true;
        }
        _wake.notify_all();
        _thread.join();
    }

private:
    std::mutex _mutex;
    std::condition_variable _wake;
    bool _is_stopping = false;
    std::thread _thread;
};

/// @brief Owns one rank's ncclComm_t: polling, errors, time-outs, abort and a bounded shutdown.
/// `NcclSession` adds the calls on it.
///
/// Calls of NCCL hold one mutex, which a wait releases between two polls. So the owner's thread,
/// the watchdog and an aborting thread never use a handle that another thread has freed. Only a
/// blocking call, which is the default, keeps the mutex: an abort that cannot get it in time goes
/// ahead without it, because nothing else ends that call. Blocking calls that an abort does not end
/// for certain go through `run_within`.
class NcclLifetime {
public:
    using Duration = NcclSystem::Duration;
    using CollectiveCall = zero::detail::CollectiveCall;

    /// @param is_owner whether the destructor finalises and destroys the handle; an abort frees it
    /// in any case
    /// @param device the device of the handle
    NcclLifetime(NcclInterface interfaces, NcclHandle handle, bool is_owner, int rank, int world,
                 int device, NcclOptions const& options, std::shared_ptr<NcclAbortCause> cause)
        : _nccl(interfaces.nccl), _system(interfaces.system), _handle(handle), _rank(rank),
          _world(world), _device(device), _options(with_finite_waits(options)), _flights(*_system),
          _is_owner(is_owner), _cause(std::move(cause)), _exceptions(std::uncaught_exceptions()) {}

    ~NcclLifetime() {
        Duration const deadline = _system->now() + _options.finish_time_out;
        _watchdog.stop();
        NcclHandle const handle = _handle.load();
        if (handle == nullptr || !_is_owner) {
            return;
        }
        bool const is_unwinding = std::uncaught_exceptions() > _exceptions;
        if (is_unwinding || !finish(handle, deadline)) {
            release();
        }
        set_cause(" ", "left the group (its communicator was destroyed)",
                  NcclAbortCause::Kind::left);
    }

    [[nodiscard]] int rank() const noexcept { return _rank; }
    [[nodiscard]] int world() const noexcept { return _world; }
    [[nodiscard]] NcclHandle handle() const noexcept { return _handle; }
    [[nodiscard]] NcclInterface interfaces() const noexcept { return {_nccl, _system}; }

    [[nodiscard]] int device() const noexcept { return _device; }
    [[nodiscard]] NcclOptions const& options() const noexcept { return _options; }

    /// @brief Notes that ranks of the group are threads of this process.
    void share_process() noexcept { _shares_process = true; }
    [[nodiscard]] bool shares_process() const noexcept { return _shares_process; }

    /// @brief Takes ownership: the destructor finalises and destroys the handle.
    void own() noexcept { _is_owner = true; }

    /// @brief Aborts the communicator, which frees the handle and ends kernels that wait for peers.
    /// Thread-safe.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _cause->set(cause,
                    is_provisional ? NcclAbortCause::Kind::provisional
                                   : NcclAbortCause::Kind::failure,
                    _system->now());
        std::unique_lock lock(_mutex, std::try_to_lock);
        Duration const start = _system->now();
        for (unsigned turn = 0; !lock.owns_lock() && _system->now() - start < patience; ++turn) {
            _system->pause(turn);
            static_cast<void>(lock.try_lock());
        }
        release();
    }

    /// @brief Looks for failures on the watchdog's thread and keeps them for the next call.
    void watch() noexcept {
        std::unique_lock lock(_mutex, std::try_to_lock);
        if (!lock.owns_lock()) {
            watch_blocking_call();
            return;
        }
        if (_handle == nullptr) {
            return;
        }
        try {
            examine("the device's work");
        } catch (std::exception const& error) {
            _failure = std::current_exception();
            give_up(error.what());
        }
    }

protected:
    using Lock = std::unique_lock<std::mutex>;

    /// The call in progress. It is formatted only when an error needs it, so that calls do not
    /// allocate.
    struct Doing {
        char const* step;
        CollectiveCall const* call;
    };

    [[nodiscard]] std::string describe_here(Doing const& doing) const {
        std::string text = doing.step;
        if (doing.call != nullptr) {
            text += (text.empty() ? "the " : " in the ") + zero::detail::describe(*doing.call);
        }
        return zero::detail::text({text, " on rank ", _rank, " of ", _world});
    }

    /// Runs `body(lock)` under the mutex. If it fails, the communicator is aborted: otherwise the
    /// peers would wait for this rank in vain.
    template <class Body>
    void guarded(Body const& body) {
        Lock lock(_mutex);
        _busy_since = _system->now();
        try {
            body(lock);
            _busy_since = idle;
        } catch (std::exception const& error) {
            _busy_since = idle;
            give_up(error.what());
            throw;
        }
    }

    [[nodiscard]] NcclAbortCause& cause() noexcept { return *_cause; }

    void forget_unless_owner() noexcept {
        if (!_is_owner) {
            _handle = nullptr;
        }
    }

    /// Frees the handle by an abort.
    void release() noexcept {
        if (NcclHandle const handle = _handle.exchange(nullptr); handle != nullptr) {
            abort_bounded(interfaces(), _device, handle);
        }
    }

    /// The watchdog times each poll of a wait separately: only a poll that takes too long by itself
    /// is stuck inside NCCL.
    void pause(Lock& lock, unsigned turn) {
        _busy_since = idle;
        lock.unlock();
        _system->pause(turn);
        lock.lock();
        _busy_since = _system->now();
    }

    void throw_if_given_up(Lock& lock) {
        for (unsigned turn = 0;
             _cause->kind() != NcclAbortCause::Kind::none && !_cause->is_known(_system->now());
             ++turn) {
            pause(lock, turn);
        }
        if (_cause->kind() != NcclAbortCause::Kind::none) {
            throw_cause();
        }
    }

    /// Call it after a pause, in which another thread may have aborted.
    void throw_if_released(Lock& lock) {
        if (_handle == nullptr) {
            throw_if_given_up(lock);
        }
    }

    /// Checks the events, NCCL's asynchronous error, the clock and the other ranks of this process.
    void examine(std::string_view what) {
        _flights.retire();
        NcclResult error = NcclResult::success;
        require(_nccl->get_async_error(_handle, error), {"ncclCommGetAsyncError", nullptr});
        if (error != NcclResult::success && error != NcclResult::in_progress) {
            throw NcclError(
                zero::detail::text({"zero: NCCL reported an asynchronous error on rank ", _rank,
                                    " of ", _world, ", noticed at '", what,
                                    "': ", describe(*_nccl, error, _handle),
                                    ". A peer or the network failed; make a new communicator."}),
                SourceLocation::current(), static_cast<int>(error));
        }
        if (!_flights.empty()) {
            throw_if_waiting_too_long(_flights.waiting_since(),
                                      {"a collective on the device", nullptr});
        }
    }

    void require(NcclResult result, Doing const& doing) {
        if (_handle == nullptr) { // an abort ended a blocking call, whose result means nothing
            throw_cause();
        }
        if (result != NcclResult::success && result != NcclResult::in_progress) {
            require_success(*_nccl, result, describe_here(doing), _handle);
        }
    }

    /// Polls until NCCL has done the call that returned `result`, and joins it.
    void settle(Lock& lock, NcclResult result, Doing const& doing) {
        require(result, doing);
        Duration const start = _system->now();
        for (unsigned turn = 0; result == NcclResult::in_progress; ++turn) {
            require(_nccl->get_async_error(_handle, result), {"ncclCommGetAsyncError", doing.call});
            require(result, doing);
            if (result == NcclResult::in_progress) {
                throw_if_waiting_too_long(start, doing);
                pause(lock, turn);
                throw_if_released(lock);
            }
        }
        require(join(_handle), {"ncclCommCount", doing.call});
    }

    /// Completes a non-blocking call. Up to 2.25, NCCL keeps a started non-blocking call in
    /// thread-local storage until a later call on the communicator joins it; a query for errors
    /// does not join it. Without the join, a call of this thread on another communicator would find
    /// it there, as would the end of this communicator on another thread. A call that returns
    /// success may leave one there as well.
    NcclResult join(NcclHandle handle) noexcept {
        int ignored = 0;
        return _nccl->count(handle, ignored);
    }

    NcclLibrary* _nccl;
    NcclSystem* _system;
    std::atomic<NcclHandle> _handle; ///< null after it is freed
    int _rank;
    int _world;
    int _device;
    NcclOptions _options;
    std::mutex _mutex;
    NcclFlights _flights;
    NcclWatchdog _watchdog;

private:
    static constexpr Duration patience{
        200}; ///< the time that an abort waits for a thread inside NCCL before it goes ahead
    static constexpr Duration idle{-1};

    void give_up(char const* what) noexcept {
        set_cause(": ", what, NcclAbortCause::Kind::failure);
        release();
    }

    void set_cause(char const* separator, char const* what, NcclAbortCause::Kind kind) noexcept {
        try {
            _cause->set(zero::detail::text({"rank ", _rank, separator, what}), kind,
                        _system->now());
        } catch (std::exception const&) { // no memory for the text
            _cause->set(what, kind, _system->now());
        }
    }

    /// Waits for enqueued work, then has NCCL free its resources. Returns false if that fails or
    /// takes too long: the caller then aborts the handle.
    bool finish(NcclHandle handle, Duration deadline) noexcept {
        if (!have_flights_ended(deadline)) { // checked first, because a blocking communicator would
                                             // wait for them without limit
            return false;
        }
        NcclResult result = finalize(handle, deadline);
        for (unsigned turn = 0; result == NcclResult::in_progress && _system->now() < deadline;
             ++turn) {
            _system->pause(turn);
            if (_nccl->get_async_error(handle, result) != NcclResult::success) {
                return false;
            }
        }
        if (result != NcclResult::success || join(handle) != NcclResult::success) {
            return false;
        }
        // NCCL waits here for peers on this machine, without limit. A handle that was passed to
        // NCCL's destroy is no longer aborted: it may be half freed, and a failure leaves NCCL's
        // group of the thread open, which would swallow the abort. In that case the handle leaks.
        _handle = nullptr;
        _system->run_bounded(
            _device, [](NcclLibrary& nccl, NcclHandle finalized) { nccl.destroy(finalized); },
            *_nccl, handle, std::max(deadline - _system->now(), Duration(0)));
        return true;
    }

    /// Returns `in_progress` at the deadline.
    NcclResult finalize(NcclHandle handle, Duration deadline) noexcept {
        if (_options.mode == NcclMode::non_blocking) {
            return _nccl->finalize(handle);
        }
        try {
            return run_within(
                       interfaces(), _device, std::max(deadline - _system->now(), Duration(0)),
                       [nccl = _nccl, handle] { return nccl->finalize(handle); }, [](NcclResult) {})
                .value_or(NcclResult::in_progress);
        } catch (std::exception const&) { // no memory for the call
            return NcclResult::system_error;
        }
    }

    bool have_flights_ended(Duration deadline) noexcept {
        try {
            _flights.retire();
            for (unsigned turn = 0; !_flights.empty() && _system->now() < deadline; ++turn) {
                _system->pause(turn);
                _flights.retire();
            }
            return _flights.empty();
        } catch (std::exception const&) { // the device failed, or its runtime is shutting down
            return false;
        }
    }

    [[noreturn]] void throw_cause() {
        if (_failure != nullptr) { // thrown once, then replaced by the cause
            std::rethrow_exception(std::exchange(_failure, nullptr));
        }
        if (_call_timed_out.exchange(false)) {
            zero::detail::throw_error<TimedOut>({"zero: ", _cause->text()});
        }
        zero::detail::throw_error<Aborted>({"zero: the group was aborted: ", _cause->text()});
    }

    void throw_if_waiting_too_long(Duration since, Doing const& doing) {
        Duration const now = _system->now();
        if (now - since >= _options.time_out) {
            throw_waited(_options.time_out, describe_here(doing));
        }
        if (_cause->ends_waiting(now, since)) {
            throw_cause();
        }
    }

    /// Checks the time of a call while the owner's thread is inside NCCL.
    void watch_blocking_call() noexcept {
        Duration const since = _busy_since;
        Duration const now = _system->now();
        if (since == idle) {
            return;
        }
        if (now - since >= _options.time_out) {
            _call_timed_out = true;
            give_up(
                "waited longer than cuda::NcclOptions::time_out inside a blocking call of NCCL; "
                "every rank must call the same collectives");
        } else if (now - since >= patience && _cause->ends_waiting(now, since)) {
            release();
        }
    }

    bool _is_owner;
    bool _shares_process = false;
    std::shared_ptr<NcclAbortCause> _cause;
    std::exception_ptr _failure; ///< found by the watchdog, not thrown yet
    std::atomic<bool> _call_timed_out{false};
    std::atomic<Duration> _busy_since{idle};
    int _exceptions;
};

} // namespace ZERO_NAMESPACE::cuda::detail
