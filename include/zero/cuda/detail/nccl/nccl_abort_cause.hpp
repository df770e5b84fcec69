#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../nccl_system.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Why a group was aborted, as far as this process knows. The ranks of a process share it.
///
/// The first cause of a kind counts; a more severe kind replaces a less severe one. All groups that
/// were split from one another share a failure, but not the departure of a rank. Thread-safe.
class NcclAbortCause : public std::enable_shared_from_this<NcclAbortCause> {
public:
    using Duration = NcclSystem::Duration;

    NcclAbortCause() : _family(std::make_shared<Family>()) {}

    enum class Kind : std::uint8_t {
        none,
        provisional, ///< the code that catches the exception may know more: others wait a moment
                     ///< before they report it
        left,        ///< a rank ended normally: its enqueued data still arrives, but nothing new
        failure
    };

    /// @brief Returns the cause of a part of the group, the same for all ranks of this process.
    /// @param split the number of the split of this group, equal on all ranks
    [[nodiscard]] std::shared_ptr<NcclAbortCause> part(std::size_t split, int color) {
        std::lock_guard const lock(_family->mutex);
        std::vector<Member>& members = _family->members;
        if (members.empty()) {
            members.push_back({weak_from_this(), no_parent, 0, 0});
        }
        for (Member const& member : members) {
            if (member.parent == _number && member.split == split && member.color == color) {
                if (auto cause = member.cause.lock()) {
                    return cause;
                }
            }
        }
        std::erase_if(members, [](Member const& member) { return member.cause.expired(); });
        auto cause = std::make_shared<NcclAbortCause>();
        cause->_family = _family;
        cause->_number = ++_family->groups;
        members.push_back({cause, _number, split, color});
        return cause;
    }

    void set(std::string_view text, Kind kind, Duration now) noexcept {
        set_own(text, kind, now);
        if (kind != Kind::left) {
            std::lock_guard const lock(_family->mutex);
            for (Member const& member : _family->members) {
                if (auto const cause = member.cause.lock()) {
                    cause->set_own(text, kind, now);
                }
            }
        }
    }

    [[nodiscard]] Kind kind() const noexcept { return _kind; }

    /// @brief Returns whether a rank that starts a collective may report the cause.
    [[nodiscard]] bool is_known(Duration now) const noexcept {
        return _kind != Kind::none && (_kind != Kind::provisional || now - _set_at.load() >= grace);
    }

    /// @brief Returns whether the cause ends a collective of another rank that has made no progress
    /// since `since`.
    [[nodiscard]] bool ends_waiting(Duration now, Duration since) const noexcept {
        return is_known(now) && (_kind != Kind::left || now - since >= grace);
    }

    [[nodiscard]] std::string text() const {
        std::lock_guard const lock(_mutex);
        return _text;
    }

private:
    static constexpr std::size_t no_parent = ~std::size_t{0};

    /// A group of the family, and the split that made it.
    struct Member {
        std::weak_ptr<NcclAbortCause> cause;
        std::size_t parent; ///< the number of the group that was split
        std::size_t split;
        int color;
    };

    /// The groups of this process that were split from one another; empty before the first split.
    struct Family {
        std::mutex mutex;
        std::vector<Member> members;
        std::size_t groups = 0;
    };

    void set_own(std::string_view text, Kind kind, Duration now) noexcept {
        std::lock_guard const lock(_mutex);
        if (kind <= _kind) {
            return;
        }
        _set_at = now; // before the kind, which is read without the mutex
        _kind = kind;
        try {
            _text = text;
        } catch (std::exception const&) { // no memory for the text: the kind says enough
            _text.clear();
        }
    }

    static constexpr Duration grace{1000};

    std::shared_ptr<Family> _family;
    std::size_t _number = 0;

    mutable std::mutex _mutex;
    std::atomic<Kind> _kind{Kind::none};
    std::atomic<Duration> _set_at{};
    std::string _text;
};

} // namespace ZERO_NAMESPACE::cuda::detail
