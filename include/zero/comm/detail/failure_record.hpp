#pragma once

#include "../../core/detail/namespace.hpp"

#include <atomic>
#include <condition_variable> // also declares clocks and durations, cheaper than <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Why a communicator cannot be used any more.
enum class FailureKind : std::uint8_t { none, aborted, mismatch };

/// @brief The failure of a group as one process knows it: kind and cause. It only records. The
/// transports between processes, which use it, send messages (`mpi/detail/peers.hpp`,
/// `torch/detail/group_records.hpp`). The caller guards it by a lock, except `has_failed`.
class FailureRecord {
public:
    using Clock = std::chrono::steady_clock;

    /// @brief Keeps the first cause; a provisional one may be replaced for a moment.
    void fail(FailureKind kind, std::string_view cause, bool is_provisional) noexcept {
        if (_kind != FailureKind::none && (!_is_provisional || is_provisional)) {
            return;
        }
        _kind = kind;
        _is_provisional = is_provisional;
        _grace_end = Clock::now() + grace;
        try {
            _cause = cause;
        } catch (std::exception const&) { // no memory for the text: the state is enough
            _cause.clear();
        }
        _has_failed.store(true, std::memory_order_release);
    }

    /// @brief Returns whether the failure is final; a provisional one becomes final after a moment.
    [[nodiscard]] bool is_final() noexcept {
        if (_is_provisional && Clock::now() >= _grace_end) {
            _is_provisional = false;
        }
        return _kind != FailureKind::none && !_is_provisional;
    }

    [[nodiscard]] bool is_provisional() const noexcept { return _is_provisional; }
    [[nodiscard]] FailureKind kind() const noexcept { return _kind; }
    [[nodiscard]] std::string const& cause() const noexcept { return _cause; }

    /// @brief Returns whether there is any failure, without the lock.
    [[nodiscard]] bool has_failed() const noexcept {
        return _has_failed.load(std::memory_order_acquire);
    }

private:
    static constexpr std::chrono::milliseconds grace{1000}; ///< time for a better cause to arrive

    FailureKind _kind = FailureKind::none;
    bool _is_provisional = false;
    std::atomic<bool> _has_failed{false};
    std::string _cause;
    Clock::time_point _grace_end{};
};

} // namespace ZERO_NAMESPACE::detail
