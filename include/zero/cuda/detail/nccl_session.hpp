#pragma once

#include "../../comm/detail/collective_call.hpp"
#include "../nccl_error.hpp"
#include "../nccl_library.hpp"
#include "../nccl_options.hpp"
#include "nccl_abort_cause.hpp"
#include "nccl_flights.hpp"
#include "nccl_group.hpp"
#include "nccl_watchdog.hpp"

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace zero::cuda::detail {

/// @brief One rank's communicator of NCCL from its start to its end: calls, polling, time-outs, errors, abort. Knows no element type and no backend.
///
/// NCCL is called under one mutex, which a wait gives back between two questions; so the owner's thread, the watchdog and whoever aborts never use a
/// handle that another has freed. Only a blocking call keeps it: an abort that can not have it in time goes ahead without, as NCCL allows for just that case.
class NcclSession {
public:
    using Duration = NcclSystem::Duration;
    using CollectiveCall = zero::detail::CollectiveCall;

    /// @param is_owner finalises and destroys the handle at the end; an abort frees it in any case
    NcclSession(NcclInterface interfaces, NcclHandle handle, bool is_owner, int rank, int world, NcclOptions const& options, std::shared_ptr<NcclAbortCause> cause)
        : _nccl(interfaces.nccl), _system(interfaces.system), _handle(handle), _is_owner(is_owner), _rank(rank), _world(world), _options(options),
          _cause(std::move(cause)), _flights(*_system), _exceptions(std::uncaught_exceptions()) {}

    NcclSession(NcclSession const&) = delete;
    NcclSession& operator=(NcclSession const&) = delete;

    ~NcclSession() {
        _watchdog.stop();
        NcclHandle const handle = _handle.load();
        if (handle == nullptr || !_is_owner) {
            return;
        }
        bool const is_unwinding = std::uncaught_exceptions() > _exceptions;
        if (is_unwinding || !finish(handle)) {
            release();
        }
        leave();
    }

    /// @brief Waits until NCCL has set the communicator up, and begins to watch over it. `what` says in messages what was started.
    void open(char const* what) {
        guarded([&](std::unique_lock<std::mutex>& lock) {
            settle(lock, NcclResult::in_progress, {what, nullptr});
            _flights.make_events();
        });
        if (_options.watch_interval.count() != 0) {
            _watchdog.start(_options.watch_interval, [](void* self) { static_cast<NcclSession*>(self)->watch(); }, this);
        }
    }

    [[nodiscard]] int rank() const noexcept { return _rank; }
    [[nodiscard]] int world() const noexcept { return _world; }
    [[nodiscard]] NcclHandle handle() const noexcept { return _handle; }
    [[nodiscard]] NcclInterface interfaces() const noexcept { return {_nccl, _system}; }

    /// @brief Throws what has gone wrong since the last call, if anything. `what` is what the caller is about to do.
    void check(std::string_view what) {
        guarded([&](std::unique_lock<std::mutex>& lock) {
            throw_if_given_up(lock);
            examine(what);
        });
    }

    /// @brief Enqueues a collective whose arguments were checked. `cuts` is empty for those that have none.
    void run(CollectiveCall const& call, void const* send, void* receive, std::span<std::size_t const> cuts, StreamHandle stream) {
        guarded([&](std::unique_lock<std::mutex>& lock) {
            if (call.count == 0) { // on every rank, so none waits for another, and one that has left is not missed
                throw_if_released(lock);
                return;
            }
            throw_if_given_up(lock);
            examine(call.tag.what);
            issue(lock, call, send, receive, cuts, stream);
            _flights.add(stream);
        });
    }

    /// @brief Waits until all collectives so far have run. @throws TimedOut, NcclError, Aborted
    void synchronize() {
        guarded([&](std::unique_lock<std::mutex>& lock) {
            throw_if_released(lock); // a peer that left may have left behind what this rank waits for
            for (unsigned turn = 0;; ++turn) {
                examine("a wait for all collectives");
                if (_flights.empty()) {
                    return;
                }
                pause(lock, turn);
                throw_if_released(lock);
            }
        });
    }

    /// @brief Tells NCCL about memory that collectives will use. Null when NCCL keeps no registrations.
    [[nodiscard]] void* register_memory(void* memory, std::size_t bytes) {
        void* registration = nullptr;
        guarded([&](std::unique_lock<std::mutex>& lock) {
            throw_if_given_up(lock);
            settle(lock, _nccl->register_memory(_handle, memory, bytes, registration), {"ncclCommRegister", nullptr});
        });
        return registration;
    }

    /// @brief An abort has forgotten all registrations.
    void deregister_memory(void* registration) noexcept {
        std::lock_guard const lock(_mutex);
        if (_handle != nullptr && registration != nullptr) {
            _nccl->deregister_memory(_handle, registration);
        }
    }

    /// @brief Any thread. With the handle gone, kernels that wait for peers end.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _cause->set(cause, is_provisional ? NcclAbortCause::Kind::provisional : NcclAbortCause::Kind::failure, _system->now());
        std::unique_lock lock(_mutex, std::try_to_lock);
        Duration const start = _system->now();
        for (unsigned turn = 0; !lock.owns_lock() && _system->now() - start < patience; ++turn) {
            _system->pause(turn);
            static_cast<void>(lock.try_lock());
        }
        release();
    }

    /// @brief What the watchdog does: keeps what it finds for the next call.
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

private:
    static constexpr Duration patience{200}; ///< with a thread that is inside NCCL, before a communicator is aborted under it
    static constexpr Duration idle{-1};

    /// What is under way, as a text only when it is needed: calls take no memory.
    struct Doing {
        char const* step;
        CollectiveCall const* call;
    };

    [[nodiscard]] std::string describe_here(Doing const& doing) const {
        std::string text = doing.step;
        if (doing.call != nullptr) {
            text += (text.empty() ? "the " : " in the ") + zero::detail::describe(*doing.call);
        }
        return text + " on rank " + std::to_string(_rank) + " of " + std::to_string(_world);
    }

    /// Runs `body(lock)` under the mutex; when it fails, the communicator is aborted: what the peers wait for will not come.
    template <class Body>
    void guarded(Body const& body) {
        std::unique_lock lock(_mutex);
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

    void give_up(char const* what) noexcept {
        try {
            _cause->set("rank " + std::to_string(_rank) + ": " + what, NcclAbortCause::Kind::failure, _system->now());
        } catch (std::exception const&) { // no memory for the text
            _cause->set(what, NcclAbortCause::Kind::failure, _system->now());
        }
        release();
    }

    void release() noexcept {
        if (NcclHandle const handle = _handle.exchange(nullptr); handle != nullptr) {
            _nccl->abort(handle);
        }
    }

    void leave() noexcept {
        try {
            _cause->set("rank " + std::to_string(_rank) + " left the group (its communicator was destroyed)", NcclAbortCause::Kind::left, _system->now());
        } catch (std::exception const&) { // no memory for the text
            _cause->set("a rank left the group", NcclAbortCause::Kind::left, _system->now());
        }
    }

    /// Everything enqueued has run and NCCL's resources are free; false when that fails or takes too long.
    bool finish(NcclHandle handle) noexcept {
        Duration const deadline = _system->now() + _options.finish_time_out;
        if (!have_flights_ended(deadline)) { // asked first, since a blocking communicator would wait for them without end
            return false;
        }
        NcclResult result = _nccl->finalize(handle);
        for (unsigned turn = 0; result == NcclResult::in_progress && _system->now() < deadline; ++turn) {
            _system->pause(turn);
            if (_nccl->get_async_error(handle, result) != NcclResult::success) {
                return false;
            }
        }
        if (result != NcclResult::success) {
            return false;
        }
        result = _nccl->destroy(handle);
        bool const is_destroyed = result == NcclResult::success || result == NcclResult::in_progress;
        if (is_destroyed) {
            _handle = nullptr;
        }
        return is_destroyed;
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

    void pause(std::unique_lock<std::mutex>& lock, unsigned turn) {
        lock.unlock();
        _system->pause(turn);
        lock.lock();
    }

    void throw_if_given_up(std::unique_lock<std::mutex>& lock) {
        for (unsigned turn = 0; _cause->kind() != NcclAbortCause::Kind::none && !_cause->is_known(_system->now()); ++turn) {
            pause(lock, turn);
        }
        if (_cause->kind() != NcclAbortCause::Kind::none) {
            throw_cause();
        }
    }

    /// After a pause, in which another thread may have aborted.
    void throw_if_released(std::unique_lock<std::mutex>& lock) {
        if (_handle == nullptr) {
            throw_if_given_up(lock);
        }
    }

    [[noreturn]] void throw_cause() {
        if (_failure != nullptr) { // once; afterwards it is history
            std::rethrow_exception(std::exchange(_failure, nullptr));
        }
        if (_call_timed_out.exchange(false)) {
            throw TimedOut("zero: " + _cause->text());
        }
        throw Aborted("zero: the group was aborted: " + _cause->text());
    }

    /// Looks at the events, at NCCL's asynchronous error, at the clock and at the ranks of this process.
    void examine(std::string_view what) {
        _flights.retire();
        NcclResult error = NcclResult::success;
        require(_nccl->get_async_error(_handle, error), {"ncclCommGetAsyncError", nullptr});
        if (error != NcclResult::success && error != NcclResult::in_progress) {
            throw NcclError("zero: NCCL reported an asynchronous error on rank " + std::to_string(_rank) + " of " + std::to_string(_world) + ", noticed at '"
                                + std::string(what) + "': " + describe(*_nccl, error, _handle) + ". A peer or the network failed; make a new communicator.",
                            SourceLocation::current(), static_cast<int>(error));
        }
        if (!_flights.empty()) {
            throw_if_waiting_too_long(_flights.waiting_since(), {"a collective on the device", nullptr});
        }
    }

    void throw_if_waiting_too_long(Duration since, Doing const& doing) {
        Duration const now = _system->now();
        if (now - since >= _options.time_out) {
            throw TimedOut("zero: waited " + std::to_string(_options.time_out.count()) + " ms for " + describe_here(doing)
                           + "; every rank has to call the same collectives, or raise NcclOptions::time_out.");
        }
        if (_cause->ends_waiting(now, since)) {
            throw_cause();
        }
    }

    void require(NcclResult result, Doing const& doing) {
        if (_handle == nullptr) { // a blocking call that an abort ended, whatever it returned
            throw_cause();
        }
        require_success(*_nccl, result, describe_here(doing), _handle);
    }

    /// Polls until NCCL has done what returned `result`.
    void settle(std::unique_lock<std::mutex>& lock, NcclResult result, Doing const& doing) {
        require(result, doing);
        Duration const start = _system->now();
        for (unsigned turn = 0; result == NcclResult::in_progress; ++turn) {
            require(_nccl->get_async_error(_handle, result), {"ncclCommGetAsyncError", doing.call});
            if (result != NcclResult::in_progress) {
                require(result, doing);
                return;
            }
            throw_if_waiting_too_long(start, doing);
            pause(lock, turn);
            throw_if_released(lock);
        }
    }

    /// The owner's thread is inside NCCL.
    void watch_blocking_call() noexcept {
        Duration const since = _busy_since;
        Duration const now = _system->now();
        if (since == idle) {
            return;
        }
        if (now - since >= _options.time_out) {
            _call_timed_out = true;
            give_up("waited longer than NcclOptions::time_out inside a blocking call of NCCL; every rank has to call the same collectives");
        } else if (now - since >= patience && _cause->ends_waiting(now, since)) {
            release();
        }
    }

    static constexpr NcclType nccl_type(DType type) noexcept {
        switch (type) {
        case DType::float32: return NcclType::float32;
        case DType::bfloat16: return NcclType::bfloat16;
        case DType::float16: return NcclType::float16;
        case DType::int64: return NcclType::int64;
        case DType::bytes: break;
        }
        return NcclType::uint8;
    }

    static bool are_even(std::span<std::size_t const> cuts) noexcept {
        for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
            if (cuts[cut] != cut * cuts[1]) {
                return false;
            }
        }
        return true;
    }

    void issue(std::unique_lock<std::mutex>& lock, CollectiveCall const& call, void const* send, void* receive,
                        std::span<std::size_t const> cuts, StreamHandle stream) {
        NcclType const type = nccl_type(call.type);
        switch (call.kind) {
        case CollectiveKind::reduce_scatter: reduce_extents(lock, call, send, receive, cuts, stream); break;
        case CollectiveKind::all_gather: gather_extents(lock, call, send, receive, cuts, stream); break;
        case CollectiveKind::all_reduce:
            if (_options.native_all_reduce) {
                settle(lock, _nccl->all_reduce(send, receive, call.count, type, NcclReduction::sum, _handle, stream), {"", &call});
            } else { // as two calls: NCCL's all-reduce would add in another order
                void* const own = static_cast<std::byte*>(receive) + cuts[static_cast<std::size_t>(_rank)] * size_of(call.type);
                reduce_extents(lock, call, send, own, cuts, stream);
                gather_extents(lock, call, own, receive, cuts, stream);
            }
            break;
        case CollectiveKind::broadcast:
            settle(lock, _nccl->broadcast(send, receive, call.count, type, static_cast<int>(call.detail), _handle, stream), {"", &call});
            break;
        case CollectiveKind::integers: {
            bool const is_sum = static_cast<IntegerReduction>(call.detail) == IntegerReduction::sum;
            settle(lock, _nccl->all_reduce(send, receive, call.count, type, is_sum ? NcclReduction::sum : NcclReduction::min, _handle, stream), {"", &call});
            break;
        }
        }
    }

    /// Each extent's sum goes to its owner.
    void reduce_extents(std::unique_lock<std::mutex>& lock, CollectiveCall const& call, void const* send, void* receive,
                        std::span<std::size_t const> cuts, StreamHandle stream) {
        NcclType const type = nccl_type(call.type);
        if (are_even(cuts)) {
            settle(lock, _nccl->reduce_scatter(send, receive, cuts[1], type, NcclReduction::sum, _handle, stream), {"", &call});
            return;
        }
        NcclGroup group(*_nccl, release_of, this);
        require(group.start(), {"ncclGroupStart", &call});
        for (int owner = 0; owner < _world; ++owner) {
            auto const extent = extent_of(cuts, owner);
            if (extent.elements != 0) {
                auto const* const values = static_cast<std::byte const*>(send) + extent.begin * size_of(call.type);
                require(_nccl->reduce(values, owner == _rank ? receive : nullptr, extent.elements, type, NcclReduction::sum, owner, _handle, stream),
                        {"ncclReduce", &call});
            }
        }
        settle(lock, group.end(), {"ncclGroupEnd", &call});
    }

    /// Each extent goes from its owner to all.
    void gather_extents(std::unique_lock<std::mutex>& lock, CollectiveCall const& call, void const* send, void* receive,
                        std::span<std::size_t const> cuts, StreamHandle stream) {
        NcclType const type = nccl_type(call.type);
        if (are_even(cuts)) {
            settle(lock, _nccl->all_gather(send, receive, cuts[1], type, _handle, stream), {"", &call});
            return;
        }
        NcclGroup group(*_nccl, release_of, this);
        require(group.start(), {"ncclGroupStart", &call});
        for (int owner = 0; owner < _world; ++owner) {
            auto const extent = extent_of(cuts, owner);
            if (extent.elements != 0) {
                auto* const values = static_cast<std::byte*>(receive) + extent.begin * size_of(call.type);
                require(_nccl->broadcast(owner == _rank ? send : values, values, extent.elements, type, owner, _handle, stream),
                        {"ncclBroadcast", &call});
            }
        }
        settle(lock, group.end(), {"ncclGroupEnd", &call});
    }

    struct Extent {
        std::size_t begin;
        std::size_t elements;
    };

    static Extent extent_of(std::span<std::size_t const> cuts, int owner) noexcept {
        auto const rank = static_cast<std::size_t>(owner);
        return {cuts[rank], cuts[rank + 1] - cuts[rank]};
    }

    static void release_of(void* self) noexcept { static_cast<NcclSession*>(self)->release(); }

    NcclLibrary* _nccl;
    NcclSystem* _system;
    std::atomic<NcclHandle> _handle; ///< null once it was freed
    bool _is_owner;
    int _rank;
    int _world;
    NcclOptions _options;
    std::shared_ptr<NcclAbortCause> _cause;
    std::mutex _mutex;
    NcclFlights _flights;
    std::exception_ptr _failure; ///< found by the watchdog, not thrown yet
    std::atomic<bool> _call_timed_out{false};
    std::atomic<Duration> _busy_since{idle};
    int _exceptions;
    NcclWatchdog _watchdog;
};

} // namespace zero::cuda::detail
