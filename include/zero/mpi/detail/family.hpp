#pragma once

#include "../../comm/detail/failure_record.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace ZERO_NAMESPACE::mpi::detail {

class Peers;

using zero::detail::FailureKind;

/// @brief The failure that a communicator and those split from it share in this process, and the
/// lock under which they call MPI. Guarded by that lock, except `has_failed`.
class Family : public zero::detail::FailureRecord {
public:
    using Lock = std::unique_lock<std::mutex>;

    /// @param is_serialized whether MPI lets only one thread at a time call it: then all families
    /// of the process share a lock
    explicit Family(bool is_serialized) noexcept : _mutex(&_own) {
        static std::mutex of_process;
        if (is_serialized) {
            _mutex = &of_process;
        }
    }

    [[nodiscard]] Lock lock() { return Lock(*_mutex); }

    void add(Peers* member) { _members.push_back(member); }

    void remove(Peers const* member) noexcept {
        for (Peers*& other : _members) {
            other = other == member ? nullptr : other;
        }
    }

    /// @brief The communicators of the family in this process; null for those that were removed.
    [[nodiscard]] zero::detail::List<Peers*> const& members() const noexcept { return _members; }

    /// @brief Keeps a communicator that an exception destroys until another one of the family is
    /// destroyed, unless it is the last: the handler of the exception can then report the cause
    /// before this rank waits for its peers. Call it under the lock.
    [[gnu::cold]] void keep(std::shared_ptr<void> leaving) {
        std::size_t others = 0;
        for (Peers const* const member : _members) {
            others += member != nullptr ? 1 : 0;
        }
        if (others > 1 + _kept.size()) {
            _kept.push_back(std::move(leaving));
        }
    }

    /// @brief Returns what was kept. Call it under the lock, and destroy the result outside.
    [[nodiscard]] zero::detail::List<std::shared_ptr<void>> take_kept() noexcept {
        return std::move(_kept);
    }

private:
    std::mutex _own;
    std::mutex* _mutex;
    zero::detail::List<Peers*> _members;
    zero::detail::List<std::shared_ptr<void>> _kept;
};

} // namespace ZERO_NAMESPACE::mpi::detail
