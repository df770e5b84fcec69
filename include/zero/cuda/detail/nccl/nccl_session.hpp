#pragma once

#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/collective_call.hpp"
#include "../../../comm/traffic_count.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/error.hpp"
#include "../../../core/storage_types.hpp"
#include "../../nccl_library.hpp"
#include "nccl_abort_cause.hpp"
#include "nccl_lifetime.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Joins several calls into one operation of NCCL, from `start` to `end`.
///
/// Callers check arguments beforehand, so only NCCL itself can fail inside. If an exception leaves
/// the group, the destructor first closes it, because the group would swallow all further calls of
/// this thread. It then aborts the communicators, because peers may have started the calls that
/// were issued. The order matters: inside the group NCCL would defer an abort, and drop it together
/// with the group.
class NcclGroup {
public:
    /// @param abort called with `argument` if an exception leaves the group; must not throw
    NcclGroup(NcclLibrary& nccl, void (*abort)(void*), void* argument) noexcept
        : _nccl(&nccl), _abort(abort), _argument(argument) {}
    NcclGroup(NcclGroup const&) = delete;
    NcclGroup& operator=(NcclGroup const&) = delete;

    ~NcclGroup() {
        if (_is_open) {
            _nccl->group_end();
            _abort(_argument);
        }
    }

    [[nodiscard]] NcclResult start() noexcept {
        NcclResult const result = _nccl->group_start();
        _is_open = result == NcclResult::success;
        return result;
    }

    [[nodiscard]] NcclResult end() noexcept {
        _is_open = false;
        return _nccl->group_end();
    }

private:
    NcclLibrary* _nccl;
    void (*_abort)(void*);
    void* _argument;
    bool _is_open = false;
};

/// @brief How a session adds without the reductions of NCCL.
struct NcclRankSum {
    void* scratch;          ///< one slot for the piece of each rank
    std::size_t slot_bytes; ///< the size of a slot, and the greatest of a piece
    /// Enqueues the sum of the pieces in the slots, as the elements of `receive` from `begin` on:
    /// `add(receive, begin, elements)`.
    zero::detail::FunctionRef<void*, std::size_t, std::size_t> add;
};

/// @brief The calls on one rank's NCCL communicator, which `NcclLifetime` owns. Independent of
/// element type and backend; `BasicNcclCommunicator` has one.
class NcclSession final : public NcclLifetime {
public:
    using NcclLifetime::NcclLifetime;

    /// @brief Waits until NCCL has set up the communicator, and starts the watchdog.
    /// @param what names the start, for messages
    void open(char const* what) {
        guarded([&](Lock& lock) {
            try {
                settle(lock, NcclResult::in_progress, {what, nullptr});
                _flights.make_events();
            } catch (...) {
                forget_unless_owner(); // the caller still owns the handle if this throws
                throw;
            }
        });
        if (_options.watch_interval.count() != 0) {
            _watchdog.start(
                *_system, _device, _options.watch_interval,
                [](void* self) { static_cast<NcclSession*>(self)->watch(); }, this);
        }
    }

    /// @brief Throws the failure since the last call, if there is one.
    /// @param what names the next action of the caller, for messages
    void check(std::string_view what) {
        guarded([&](Lock& lock) {
            throw_if_given_up(lock);
            examine(what);
        });
    }

    /// @brief Enqueues a collective whose arguments were checked. `cuts` is empty for collectives
    /// that take none.
    /// @param sum how a reduction adds; null: as NCCL does
    void run(CollectiveCall const& call, void const* send, void* receive,
             std::span<std::size_t const> cuts, StreamHandle stream,
             NcclRankSum const* sum = nullptr) {
        if (_lock_of_group != nullptr) {
            if (call.count != 0) {
                issue(*_lock_of_group, call, send, receive, cuts, stream, sum);
            }
            return;
        }
        guarded([&](Lock& lock) {
            if (call.count == 0) { // empty on every rank: no rank waits for another, so one
                                   // may have left
                throw_if_released(lock);
                return;
            }
            throw_if_given_up(lock);
            examine(call.tag.what);
            issue(lock, call, send, receive, cuts, stream, sum);
            _flights.add(stream);
        });
    }

    /// @brief Calls `body`, and starts the all-gathers that it calls on `stream` as one group. The
    /// mutex is held meanwhile: an abort by another thread would free what NCCL has collected.
    template <class Body>
    void grouped(StreamHandle stream, Body const& body) {
        guarded([&](Lock& lock) {
            throw_if_given_up(lock);
            examine("a group of all-gathers");
            NcclGroup group(*_nccl, release_of, this);
            require(group.start(), {"ncclGroupStart", nullptr});
            struct Scope {
                Lock*& lock;
                ~Scope() { lock = nullptr; }
            };
            {
                Scope const scope{_lock_of_group};
                _lock_of_group = &lock;
                body();
            }
            settle(lock, group.end(), {"ncclGroupEnd of a group of all-gathers", nullptr});
            _flights.add(stream);
        });
    }

    /// @brief Waits until all collectives so far have run. @throws TimedOut, NcclError, Aborted
    void synchronise() {
        guarded([&](Lock& lock) {
            // A peer that left does not fail the wait: the collectives that it enqueued still
            // complete.
            throw_if_released(lock);
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

    /// The communicator of a part of the group.
    struct Part {
        NcclHandle handle; ///< owned by the caller; NCCL may not have set it up yet
        std::shared_ptr<NcclAbortCause> cause;
    };

    /// @brief Splits the group. Collective; waits for the peers, and for all collectives so far:
    /// with one in flight NCCL may not return.
    /// @throws InvalidArgument before anything is sent; TimedOut, NcclError, Aborted
    [[nodiscard]] Part split(int color, int key) {
        require_splittable(*_nccl, color, _rank);
        synchronise();
        auto slot = std::make_shared<NcclHandle>(nullptr);
        auto part = cause().part(_splits++, color);
        guarded([&](Lock& lock) {
            throw_if_given_up(lock);
            auto const abort_late = [in = interfaces(), device = _device, slot](NcclResult result) {
                if (result == NcclResult::success) {
                    abort_bounded(in, device, *slot);
                }
            };
            meet(
                lock, {"ncclCommSplit (all ranks of the group must split it)", nullptr}, slot,
                [nccl = _nccl, handle = _handle.load(), color, key, slot] {
                    return nccl->split(handle, color, key, *slot);
                },
                abort_late);
        });
        return {*slot, std::move(part)};
    }

    /// @brief Registers memory that collectives will use. Returns null if NCCL keeps no
    /// registrations.
    [[nodiscard]] void* register_memory(void* memory, std::size_t bytes) {
        void* registration = nullptr;
        guarded([&](Lock& lock) {
            throw_if_given_up(lock);
            settle(lock, _nccl->register_memory(_handle, memory, bytes, registration),
                   {"ncclCommRegister", nullptr});
        });
        return registration;
    }

    /// @brief Ends a registration; a no-op after an abort, which drops all registrations.
    void deregister_memory(void* registration) noexcept {
        std::lock_guard const lock(_mutex);
        if (_handle != nullptr && registration != nullptr) {
            _nccl->deregister_memory(_handle, registration);
        }
    }

    /// @brief Registers memory as a symmetric window. Collective; waits for the peers, and for all
    /// collectives so far. Returns null if the machine cannot have one.
    /// @throws TimedOut, NcclError, Aborted
    [[nodiscard]] void* register_window(void* memory, std::size_t bytes) {
        synchronise();
        auto slot = std::make_shared<void*>(nullptr);
        guarded([&](Lock& lock) {
            throw_if_given_up(lock);
            meet(
                lock,
                {"ncclCommWindowRegister (all ranks must make the arena of their "
                 "cuda::NcclMemoryResource)",
                 nullptr},
                slot,
                [nccl = _nccl, handle = _handle.load(), memory, bytes, slot] {
                    return nccl->register_window(handle, memory, bytes, *slot);
                },
                [](NcclResult) {}); // the abort ends a window that is late
        });
        return *slot;
    }

    /// @brief Ends a window; a no-op after an abort, which drops all windows.
    void deregister_window(void* window) noexcept {
        std::lock_guard const lock(_mutex);
        if (_handle != nullptr && window != nullptr) {
            _nccl->deregister_window(_handle, window);
        }
    }

private:
    static constexpr NcclType nccl_type(DType type) noexcept {
        switch (type) {
        case DType::float32: return NcclType::float32;
        case DType::bfloat16: return NcclType::bfloat16;
        case DType::float16: return NcclType::float16;
        case DType::int64: return NcclType::int64;
        case DType::power8: // states are not sent
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

    void issue(Lock& lock, CollectiveCall const& call, void const* send, void* receive,
               std::span<std::size_t const> cuts, StreamHandle stream, NcclRankSum const* sum) {
        NcclType const type = nccl_type(call.type);
        switch (call.kind) {
        case CollectiveKind::reduce_scatter:
            reduce_extents(lock, call, send, receive, cuts, stream, sum);
            break;
        case CollectiveKind::all_gather:
            gather_extents(lock, call, send, receive, cuts, stream);
            break;
        case CollectiveKind::all_reduce:
            if (_options.native_all_reduce) {
                settle(lock,
                       _nccl->all_reduce(send, receive, call.count, type, NcclReduction::sum,
                                         _handle, stream),
                       {"", &call});
            } else { // as two calls: NCCL's all-reduce would add in another order
                void* const own = static_cast<std::byte*>(receive)
                                  + cuts[static_cast<std::size_t>(_rank)] * size_of(call.type);
                reduce_extents(lock, call, send, own, cuts, stream, sum);
                gather_extents(lock, call, own, receive, cuts, stream);
            }
            break;
        case CollectiveKind::broadcast:
            settle(lock,
                   _nccl->broadcast(send, receive, call.count, type, static_cast<int>(call.detail),
                                    _handle, stream),
                   {"", &call});
            break;
        case CollectiveKind::integers: reduce_integers(lock, call, send, receive, stream); break;
        case CollectiveKind::exchange:
            exchange_extents(lock, call, send, receive,
                             extent_of(cuts, _rank).elements * size_of(call.type), cuts,
                             {0, call.count}, stream);
            break;
        }
    }

    /// Sums the first integers and minimises the others, in one group if there are both.
    void reduce_integers(Lock& lock, CollectiveCall const& call, void const* send, void* receive,
                         StreamHandle stream) {
        NcclType const type = nccl_type(call.type);
        std::size_t const sums = call.sums();
        if (sums == call.count || sums == 0) {
            bool const is_sum = sums != 0 || call.detail == 0;
            settle(lock,
                   _nccl->all_reduce(send, receive, call.count, type,
                                     is_sum ? NcclReduction::sum : NcclReduction::min, _handle,
                                     stream),
                   {"", &call});
            return;
        }
        std::size_t const bytes = sums * size_of(call.type);
        NcclGroup group(*_nccl, release_of, this);
        require(group.start(), {"ncclGroupStart", &call});
        require(_nccl->all_reduce(send, receive, sums, type, NcclReduction::sum, _handle, stream),
                {"ncclAllReduce", &call});
        require(_nccl->all_reduce(static_cast<std::byte const*>(send) + bytes,
                                  static_cast<std::byte*>(receive) + bytes, call.count - sums, type,
                                  NcclReduction::min, _handle, stream),
                {"ncclAllReduce", &call});
        settle(lock, group.end(), {"ncclGroupEnd", &call});
    }

    /// Reduces each extent to its owner.
    void reduce_extents(Lock& lock, CollectiveCall const& call, void const* send, void* receive,
                        std::span<std::size_t const> cuts, StreamHandle stream,
                        NcclRankSum const* sum) {
        if (sum != nullptr) {
            add_extents(lock, call, send, receive, cuts, stream, *sum);
            return;
        }
        NcclType const type = nccl_type(call.type);
        if (are_even(cuts)) {
            settle(lock,
                   _nccl->reduce_scatter(send, receive, cuts[1], type, NcclReduction::sum, _handle,
                                         stream),
                   {"", &call});
            return;
        }
        NcclGroup group(*_nccl, release_of, this);
        require(group.start(), {"ncclGroupStart", &call});
        for (int owner = 0; owner < _world; ++owner) {
            auto const extent = extent_of(cuts, owner);
            if (extent.elements != 0) {
                auto const* const values =
                    static_cast<std::byte const*>(send) + extent.begin * size_of(call.type);
                require(_nccl->reduce(values, owner == _rank ? receive : nullptr, extent.elements,
                                      type, NcclReduction::sum, owner, _handle, stream),
                        {"ncclReduce", &call});
            }
        }
        settle(lock, group.end(), {"ncclGroupEnd", &call});
    }

    /// Broadcasts each extent from its owner.
    void gather_extents(Lock& lock, CollectiveCall const& call, void const* send, void* receive,
                        std::span<std::size_t const> cuts, StreamHandle stream) {
        NcclType const type = nccl_type(call.type);
        if (are_even(cuts)) {
            NcclResult const result =
                _nccl->all_gather(send, receive, cuts[1], type, _handle, stream);
            if (_lock_of_group != nullptr) {
                require(result, {"", &call});
            } else {
                settle(lock, result, {"", &call});
            }
            return;
        }
        NcclGroup group(*_nccl, release_of, this);
        if (_lock_of_group == nullptr) {
            require(group.start(), {"ncclGroupStart", &call});
        }
        for (int owner = 0; owner < _world; ++owner) {
            auto const extent = extent_of(cuts, owner);
            if (extent.elements != 0) {
                auto* const values =
                    static_cast<std::byte*>(receive) + extent.begin * size_of(call.type);
                require(_nccl->broadcast(owner == _rank ? send : values, values, extent.elements,
                                         type, owner, _handle, stream),
                        {"ncclBroadcast", &call});
            }
        }
        if (_lock_of_group == nullptr) {
            settle(lock, group.end(), {"ncclGroupEnd", &call});
        }
    }

    struct Extent {
        std::size_t begin;
        std::size_t elements;
    };

    /// Adds the pieces of each extent at its owner, as `sum` does. Each round moves the same part
    /// of every extent, and the stream orders it after the sum of the round before.
    void add_extents(Lock& lock, CollectiveCall const& call, void const* send, void* receive,
                     std::span<std::size_t const> cuts, StreamHandle stream,
                     NcclRankSum const& sum) {
        Extent round{0, sum.slot_bytes / size_of(call.type)};
        std::size_t longest = 0;
        for (int owner = 0; owner < _world; ++owner) {
            longest = std::max(longest, extent_of(cuts, owner).elements);
        }
        for (; round.begin < longest; round.begin += round.elements) {
            exchange_extents(lock, call, send, sum.scratch, sum.slot_bytes, cuts, round, stream);
            if (auto const own = part_of(cuts, _rank, round); own.elements != 0) {
                sum.add(receive, round.begin, own.elements);
            }
        }
    }

    /// Sends a part of each extent to its owner, in one group. The piece of rank r arrives r slots
    /// after `receive`. A rank sends its own piece to itself, and is in every group: a part of some
    /// extent is not empty.
    void exchange_extents(Lock& lock, CollectiveCall const& call, void const* send, void* receive,
                          std::size_t slot_bytes, std::span<std::size_t const> cuts, Extent round,
                          StreamHandle stream) {
        NcclType const type = nccl_type(call.type);
        auto const own = part_of(cuts, _rank, round);
        NcclGroup group(*_nccl, release_of, this);
        require(group.start(), {"ncclGroupStart", &call});
        for (int peer = 0; peer < _world; ++peer) {
            auto const sent = part_of(cuts, peer, round);
            if (sent.elements != 0) {
                auto const* const piece =
                    static_cast<std::byte const*>(send) + sent.begin * size_of(call.type);
                require(_nccl->send(piece, sent.elements, type, peer, _handle, stream),
                        {"ncclSend", &call});
            }
            if (own.elements != 0) {
                auto* const slot =
                    static_cast<std::byte*>(receive) + static_cast<std::size_t>(peer) * slot_bytes;
                require(_nccl->receive(slot, own.elements, type, peer, _handle, stream),
                        {"ncclRecv", &call});
            }
        }
        settle(lock, group.end(), {"ncclGroupEnd", &call});
    }

    static Extent extent_of(std::span<std::size_t const> cuts, int owner) noexcept {
        auto const rank = static_cast<std::size_t>(owner);
        return {cuts[rank], cuts[rank + 1] - cuts[rank]};
    }

    /// The elements `round` of an extent, as far as it has them.
    static Extent part_of(std::span<std::size_t const> cuts, int owner, Extent round) noexcept {
        auto const extent = extent_of(cuts, owner);
        std::size_t const begin = std::min(round.begin, extent.elements);
        return {extent.begin + begin, std::min(round.elements, extent.elements - begin)};
    }

    /// @throws InvalidArgument if the group cannot be split, or not by this color
    static void require_splittable(NcclLibrary& nccl, int color, int rank) {
        if (!nccl.has_split()) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: split on rank ", rank,
                 ": this cuda::NcclLibrary has no split; implement cuda::NcclLibrary::has_split "
                 "and split "
                 "(ncclCommSplit, in NCCL since 2.18), or make each group with from_unique_id."});
        }
        if (color < 0) {
            zero::detail::throw_error<InvalidArgument>({"zero: split got the color ", color,
                                                        " on rank ", rank,
                                                        "; colors are not negative."});
        }
    }

    /// Keeps a result for ever, because NCCL may still write to it.
    static void keep(std::shared_ptr<void*> slot) {
        static std::mutex mutex;
        static auto& kept = *new std::vector<std::shared_ptr<void*>>;
        std::lock_guard const lock(mutex);
        kept.push_back(std::move(slot));
    }

    /// Makes a call in which NCCL waits on the host for the peers, and whose result it writes to
    /// `slot`, perhaps later. A blocking one may survive the abort of the group if a peer is
    /// absent; `discard` gets its late result.
    template <class Call, class Discard>
    void meet(Lock& lock, Doing const& doing, std::shared_ptr<void*> const& slot, Call call,
              Discard discard) {
        try {
            if (_options.mode == NcclMode::non_blocking) {
                settle(lock, call(), doing);
                return;
            }
            auto const result = run_within(interfaces(), _device, _options.time_out,
                                           std::move(call), std::move(discard));
            require(result.value_or(NcclResult::success), doing);
            if (!result) {
                throw_waited(_options.time_out, describe_here(doing));
            }
            settle(lock, *result, doing);
        } catch (...) {
            if (_options.mode == NcclMode::non_blocking) {
                keep(slot);
            }
            throw;
        }
    }

    static void release_of(void* self) noexcept { static_cast<NcclSession*>(self)->release(); }

    std::size_t _splits = 0;
    Lock* _lock_of_group = nullptr; ///< while `grouped` calls its body; the owner's thread uses it
};

} // namespace ZERO_NAMESPACE::cuda::detail
