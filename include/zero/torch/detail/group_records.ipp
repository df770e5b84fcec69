#pragma once

#include "group_records.hpp"

#include "../../comm/detail/collective_call.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <chrono>
#include <optional>
#include <utility>

namespace ZERO_NAMESPACE::torch::detail {

/// The number under a key, if a rank wrote one.
ZERO_COLD_INLINE std::optional<std::uint64_t> number_in(c10d::Store& store,
                                                        std::string const& key) {
    if (!store.check({key})) {
        return std::nullopt;
    }
    return std::stoull(store.get_to_str(key));
}

ZERO_COLD_INLINE GroupRecords::GroupRecords(c10::intrusive_ptr<c10d::Store> store,
                                            std::string_view group, int rank, int world) noexcept
    : _store(std::move(store)), _has_store(_store != nullptr), _rank(rank), _world(world) {
    with_store([&](c10d::Store& shared) {
        _prefix = zero::detail::text({"zero/", group, "/"});
        // Each rank counts the communicators that it makes from this group. The counts agree, so a
        // communicator does not find the records of an earlier one.
        auto const number = shared.add(key("communicators of rank", rank), 1);
        _prefix = zero::detail::text({_prefix, number, '/'});
    });
}

template <class Use>
void GroupRecords::with_store(Use const& use) noexcept {
    if (!_has_store.load(std::memory_order_acquire)) {
        return;
    }
    try {
        use(*_store);
    } catch (...) { // the process that hosts it has ended, for instance
        _has_store.store(false, std::memory_order_release);
    }
}

ZERO_COLD_INLINE std::string GroupRecords::key(char const* name, int rank) const {
    return zero::detail::text({_prefix, name, ' ', rank});
}

ZERO_COLD_INLINE void GroupRecords::keep(FailureKind kind, std::string_view cause,
                                         bool is_provisional) noexcept {
    {
        std::lock_guard const lock(_mutex);
        _failure.fail(kind, cause, is_provisional);
    }
    _changed.notify_all();
}

ZERO_COLD_INLINE void GroupRecords::fail(FailureKind kind, std::string_view cause,
                                         bool is_provisional) noexcept {
    keep(kind, cause, is_provisional);
    with_store([&](c10d::Store& store) {
        // The first letter is the kind: a record must not be empty, and is written at once.
        std::string const record =
            zero::detail::text({kind == FailureKind::mismatch ? 'm' : 'a', cause});
        store.compareSet(key(is_provisional ? "provisional cause" : "cause"), std::string(),
                         record);
    });
}

ZERO_INLINE void GroupRecords::begin(zero::detail::CallSignature::Words const& call) {
    std::lock_guard const lock(_mutex);
    ++_number;
    _call = call;
}

ZERO_COLD_INLINE std::string GroupRecords::current_call() {
    std::lock_guard const lock(_mutex);
    return describe_call();
}

ZERO_COLD_INLINE std::string GroupRecords::describe_call() const {
    return zero::detail::CallSignature::describe_call(_call, _number);
}

ZERO_COLD_INLINE void GroupRecords::look() noexcept {
    with_store([&](c10d::Store& store) {
        for (bool const is_provisional : {false, true}) {
            std::string const name = key(is_provisional ? "provisional cause" : "cause");
            if (store.check({name})) {
                std::string const record = store.get_to_str(name);
                keep(record.front() == 'm' ? FailureKind::mismatch : FailureKind::aborted,
                     std::string_view(record).substr(1), is_provisional);
                return;
            }
        }
        if (!store.check({key("a rank left")})) {
            return;
        }
        for (int peer = 0; peer < _world; ++peer) {
            auto const last = number_in(store, key("left after", peer));
            if (peer != _rank && last && *last < _number) {
                fail(FailureKind::aborted,
                     zero::detail::text({"rank ", peer, " left the group after its collective ",
                                         *last, ", and rank ", _rank, " waits in collective ",
                                         _number}),
                     false);
                return;
            }
        }
    });
}

ZERO_COLD_INLINE void GroupRecords::settle() noexcept {
    for (bool is_settled = !has_failed(); !is_settled;) {
        {
            std::unique_lock lock(_mutex);
            is_settled = _failure.is_final()
                         || _changed.wait_for(lock, std::chrono::milliseconds(20),
                                              [&] { return _failure.is_final(); });
        }
        if (!is_settled) {
            look();
        }
    }
}

ZERO_COLD_INLINE void GroupRecords::throw_if_final() {
    std::lock_guard const lock(_mutex);
    if (!_failure.has_failed() || !_failure.is_final()) {
        return;
    }
    bool const was_thrown = std::exchange(_was_thrown, true);
    if (_failure.kind() == FailureKind::mismatch && !was_thrown) {
        zero::detail::throw_mismatch(_failure.cause());
    }
    zero::detail::throw_error<Aborted>({"zero: the group was aborted: ", _failure.cause(),
                                        "; rank ", _rank, " was in ", describe_call(), '.'});
}

ZERO_COLD_INLINE void GroupRecords::tell_waiting() noexcept {
    with_store(
        [&](c10d::Store& store) { store.set(key("waits in", _rank), std::to_string(_number)); });
}

ZERO_COLD_INLINE void GroupRecords::tell_leaving() noexcept {
    with_store([&](c10d::Store& store) {
        store.set(key("left after", _rank), std::to_string(_number));
        store.set(key("a rank left"), std::string("1"));
    });
}

ZERO_COLD_INLINE std::string GroupRecords::missing() noexcept {
    std::string result;
    with_store([&](c10d::Store& store) {
        for (int peer = 0; peer < _world; ++peer) {
            auto const number = number_in(store, key("waits in", peer));
            if (peer == _rank || (number && *number >= _number)) {
                continue;
            }
            result += zero::detail::text({result.empty() ? "rank " : ", rank ", peer});
            if (number) {
                result += zero::detail::text({" (which waited in its collective ", *number, ')'});
            }
        }
    });
    if (!result.empty()) {
        return result;
    }
    return _store == nullptr ? "its peers (unknown which, because "
                               "torch::ProcessGroupOptions::store is null)"
                             : "its peers";
}

} // namespace ZERO_NAMESPACE::torch::detail
