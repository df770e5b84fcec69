#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_library.hpp"
#include "../nccl_system.hpp"
#include "nccl_require_success.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief The collectives that are enqueued but have not run, as CUDA events, which it owns.
/// Allocates nothing after `make_events`.
///
/// Distinguishes a fixed number of them: beyond it, a collective extends the newest. Does not
/// record collectives of a captured stream, because they run when the graph is launched.
class NcclFlights {
public:
    using Duration = NcclSystem::Duration;

    explicit NcclFlights(NcclSystem& system) : _system(&system) {}
    NcclFlights(NcclFlights const&) = delete;
    NcclFlights& operator=(NcclFlights const&) = delete;

    ~NcclFlights() {
        for (std::size_t made = 0; made < _made; ++made) {
            _system->destroy_event(_flights[made].event);
        }
    }

    /// @brief Creates the events, on the current device. @throws CommunicatorError
    void make_events() {
        for (; _made < _flights.size(); ++_made) {
            require_success(*_system, _system->create_event(_flights[_made].event),
                            "the creation of an event for an NCCL communicator");
        }
    }

    [[nodiscard]] bool empty() const noexcept { return _count == 0; }

    /// @brief Adds the collective that was just enqueued on `stream`. @throws CommunicatorError
    void add(StreamHandle stream) {
        bool is_capturing = false;
        require_success(*_system, _system->is_capturing(stream, is_capturing),
                        "asking whether a stream is captured");
        if (is_capturing) {
            return;
        }
        _count = std::min(_count + 1, _flights.size());
        Flight& newest = _flights[(_first + _count - 1) % _flights.size()];
        require_success(*_system, _system->record_event(newest.event, stream),
                        "recording the end of a collective");
        newest.enqueued = _system->now();
    }

    /// @brief Removes the collectives that have run. @throws CommunicatorError if the device failed
    void retire() {
        while (_count != 0) {
            bool is_complete = false;
            require_success(*_system,
                            _system->is_event_complete(_flights[_first].event, is_complete),
                            "a command before or in a collective on the device");
            if (!is_complete) {
                return;
            }
            _first = (_first + 1) % _flights.size();
            --_count;
            _last_end = _system->now();
        }
    }

    /// @brief Returns the time from which the oldest collective has been the next to run.
    /// Precondition: not empty.
    [[nodiscard]] Duration waiting_since() const noexcept {
        return std::max(_flights[_first].enqueued, _last_end);
    }

private:
    struct Flight {
        NcclSystem::EventHandle event = nullptr;
        Duration enqueued{};
    };

    NcclSystem* _system;
    std::array<Flight, 64> _flights{};
    std::size_t _made = 0;
    std::size_t _first = 0;
    std::size_t _count = 0;
    Duration _last_end{};
};

} // namespace ZERO_NAMESPACE::cuda::detail
