#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../loopback_options.hpp"
#include "collective_call.hpp"
#include "rendezvous.hpp"

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

class LoopbackGroup;

/// @brief The state that one rank of a loopback group shows its peers.
///
/// The rank writes its slot before `enter`. The peers read it between `enter` and the next `pass`,
/// and `has_failed` after the last `pass` until they `enter` again.
struct LoopbackSlot {
    CollectiveCall call{};
    void const* send = nullptr;
    void* receive = nullptr;
    bool has_failed = false;
    bool is_in_use = false;                ///< a thread is in a call; only for `LoopbackFrame`
    int color = 0;                         ///< color in a split
    int key = 0;                           ///< key in a split
    std::shared_ptr<LoopbackGroup> part{}; ///< the group that this rank made in a split
};

/// @brief A group and all groups that were split from it. A failure of one group reaches all of
/// them before any rank throws because of it. So a rank that saw the failure of one group also
/// finds it in the others, and cannot leave them without it.
class LoopbackFamily {
public:
    /// @brief Adds a group, which fails at once if another one has failed. @throws std::bad_alloc
    void add(Rendezvous& member);

    /// @brief Removes a group, which no abort reaches from then on.
    void remove(Rendezvous& member) noexcept;

    /// @brief Aborts all groups; see `Rendezvous`.
    void abort(std::string_view cause, bool is_provisional) noexcept;

    /// @brief Aborts all groups if this one has failed. A rank that left is no failure.
    void spread(Rendezvous const& member) noexcept;

private:
    void abort_all(std::string_view cause, bool is_provisional) noexcept;

    std::mutex _mutex;
    std::vector<Rendezvous*> _members;
};

/// @brief The place of a rank after a split.
struct LoopbackPart {
    std::size_t first = 0; ///< the lowest old rank of the new group, which makes it
    std::size_t rank = 0;  ///< the new rank
    int world = 0;         ///< ranks of the new group
};

/// @brief The part of a loopback group's shared state that does not depend on the backend. Owns the
/// slots and the rendezvous.
class LoopbackGroup {
public:
    /// @throws InvalidArgument if `world` or the time-out is not positive
    LoopbackGroup(int world, LoopbackOptions const& options,
                  std::shared_ptr<LoopbackFamily> family = nullptr);
    LoopbackGroup(LoopbackGroup&&) = delete;
    LoopbackGroup& operator=(LoopbackGroup&&) = delete;
    ~LoopbackGroup() { _family->remove(_rendezvous); }

    [[nodiscard]] std::size_t world() const noexcept { return _slots.size(); }
    [[nodiscard]] LoopbackSlot& slot(std::size_t rank) noexcept { return _slots[rank]; }

    /// @brief Shows the slot of a rank to its peers, waits for them and compares their calls.
    /// @throws Aborted, TimedOut; CollectiveMismatch on every rank
    void enter(std::size_t rank);

    /// @brief Shows the arguments of a split to the peers, waits for them and returns the place of
    /// this rank in its new group.
    /// @throws Aborted, TimedOut; CollectiveMismatch on every rank
    [[nodiscard]] LoopbackPart enter_split(std::size_t rank, int color, int key);

    [[nodiscard]] LoopbackOptions const& options() const noexcept { return _options; }
    [[nodiscard]] std::shared_ptr<LoopbackFamily> const& family() const noexcept { return _family; }

    /// @brief See `Rendezvous`.
    void pass() { _rendezvous.pass(); }

    /// @brief See `Rendezvous`.
    void begin_run(std::size_t rank) noexcept { _rendezvous.begin_run(rank); }

    /// @brief See `Rendezvous`.
    void end_run(std::size_t rank) noexcept { _rendezvous.end_run(rank); }

    /// @brief Aborts this group and those of its family; see `Rendezvous`.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _family->abort(cause, is_provisional);
    }

    /// @brief Aborts the group because of an exception on a rank.
    void abort_because_of(std::size_t rank, std::exception_ptr const& failure) noexcept;

    /// @brief Aborts this group, and no other, because a rank no longer takes part.
    void leave(std::string_view cause, bool is_provisional = false) noexcept {
        _rendezvous.leave(cause, is_provisional);
    }

    /// @brief Aborts this group, and no other, because the communicator of the rank is destroyed.
    /// @param is_unwinding whether an exception destroys it: its handler may tell the cause
    void leave(std::size_t rank, bool is_unwinding) noexcept;

    /// @brief Throws if a rank failed inside the collective. @throws Aborted
    void throw_if_rank_failed() const;

private:
    [[nodiscard]] std::size_t first_difference() const noexcept;
    [[noreturn]] void part_in_disagreement(std::size_t other);

    LoopbackOptions _options;
    std::shared_ptr<LoopbackFamily> _family;
    Rendezvous _rendezvous;
    List<LoopbackSlot> _slots;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "loopback_group.ipp"
#endif
