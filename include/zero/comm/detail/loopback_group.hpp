#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../loopback_options.hpp"
#include "collective_call.hpp"
#include "rendezvous.hpp"

#include <cstddef>
#include <exception>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief The state that one rank of a loopback group shows its peers.
///
/// The rank writes its slot before `enter`. The peers read it between `enter` and the next `pass`,
/// and `has_failed` after the last `pass` until they `enter` again.
struct LoopbackSlot {
    CollectiveCall call{};
    void const* send = nullptr;
    void* receive = nullptr;
    bool has_failed = false;
};

/// @brief The part of a loopback group's shared state that does not depend on the backend. Owns the
/// slots and the rendezvous.
class LoopbackGroup {
public:
    /// @throws InvalidArgument if `world` or the time-out is not positive
    LoopbackGroup(int world, LoopbackOptions const& options);

    [[nodiscard]] std::size_t world() const noexcept { return _slots.size(); }
    [[nodiscard]] LoopbackSlot& slot(std::size_t rank) noexcept { return _slots[rank]; }

    /// @brief Publishes the slot of a rank, waits for its peers and compares their calls.
    /// @throws Aborted, TimedOut; CollectiveMismatch on every rank
    void enter(std::size_t rank);

    /// @brief See `Rendezvous`.
    void pass() { _rendezvous.pass(); }

    /// @brief See `Rendezvous`.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _rendezvous.abort(cause, is_provisional);
    }

    /// @brief Aborts the group because of an exception on a rank.
    void abort_because_of(std::size_t rank, std::exception_ptr const& failure) noexcept;

    /// @brief Aborts the group because the communicator of a rank is destroyed.
    void leave(std::size_t rank) noexcept;

    /// @brief Throws if a rank failed inside the collective. @throws Aborted
    void throw_if_rank_failed() const;

private:
    [[nodiscard]] std::size_t first_difference() const noexcept;
    [[noreturn]] void part_in_disagreement(std::size_t other);

    Rendezvous _rendezvous;
    List<LoopbackSlot> _slots;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "loopback_group.ipp"
#endif
