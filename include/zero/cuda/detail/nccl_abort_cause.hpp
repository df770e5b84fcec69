#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_system.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Why a group was aborted, as far as this process knows. The ranks of a process share it.
///
/// The first cause of a kind counts; a more severe kind replaces a less severe one. Thread-safe.
class NcclAbortCause {
public:
    using Duration = NcclSystem::Duration;

    enum class Kind : std::uint8_t {
        none,
        provisional, ///< the code that catches the exception may know more: others wait a moment
                     ///< before they report it
        left,        ///< a rank ended normally: what it enqueued still arrives, nothing new does
        failure
    };

    void set(std::string_view text, Kind kind, Duration now) noexcept {
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
    static constexpr Duration grace{1000};

    mutable std::mutex _mutex;
    std::atomic<Kind> _kind{Kind::none};
    std::atomic<Duration> _set_at{};
    std::string _text;
};

} // namespace ZERO_NAMESPACE::cuda::detail
