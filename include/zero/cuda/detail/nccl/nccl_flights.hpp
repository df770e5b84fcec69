#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/source_location.hpp"
#include "../../nccl_error.hpp"
#include "../../nccl_library.hpp"
#include "../../nccl_system.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Returns the text of a failure: "unhandled cuda error (NCCL code 1; NCCL's last message:
/// ...)".
inline std::string describe(NcclLibrary& nccl, NcclResult result, NcclHandle handle) {
    char const* const last = nccl.last_error(handle);
    bool const has_last = last != nullptr && *last != '\0';
    return zero::detail::text({nccl.error_string(result), " (NCCL code ", static_cast<int>(result),
                               has_last ? "; NCCL's last message: " : "", has_last ? last : "",
                               ')'});
}

/// @brief Throws for every result but success and "in progress".
/// @param what the name of the function, or what was done, for the message
/// @throws NcclError
inline void require_success(NcclLibrary& nccl, NcclResult result, std::string_view what,
                            NcclHandle handle = nullptr,
                            SourceLocation where = SourceLocation::current()) {
    if (result != NcclResult::success && result != NcclResult::in_progress) {
        throw NcclError(
            zero::detail::text({"zero: ", what, " failed: ", describe(nccl, result, handle),
                                ". NCCL_DEBUG=INFO shows more."}),
            where, static_cast<int>(result));
    }
}

/// @brief Throws for every code of the CUDA runtime but success. @throws CommunicatorError
inline void require_success(NcclSystem& system, int code, std::string_view what,
                            SourceLocation where = SourceLocation::current()) {
    if (code != 0) {
        throw CommunicatorError(
            zero::detail::text({"zero: ", what, " failed: ", system.error_string(code),
                                " (CUDA code ", code, ")."}),
            where, code);
    }
}

/// @brief The collectives that are enqueued but have not run, as CUDA events, which it owns.
/// Allocates nothing after `make_events`. `NcclLifetime` polls them and ends those that never end.
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

/// @brief Returns a version as text: 22809 is "2.28.9", 2708 is "2.7.8", because NCCL changed the
/// encoding with 2.9.
inline std::string nccl_version_text(int version) {
    int const major_unit = version < 10000 ? 1000 : 10000;
    return zero::detail::text(
        {version / major_unit, '.', version % major_unit / 100, '.', version % 100});
}

/// @brief Throws unless the loaded library has the major version of the header and is not older:
/// older libraries do not know the structures of newer headers. Every start of a communicator calls
/// it.
/// @throws NcclVersionMismatch naming both versions
inline void require_matching_version(NcclLibrary& nccl) {
    int library = 0;
    require_success(nccl, nccl.get_version(library), "ncclGetVersion");
    int const header = nccl.header_version();
    auto const major = [](int version) {
        return version < 10000 ? version / 1000 : version / 10000;
    };
    if (library < header || major(library) != major(header)) {
        zero::detail::throw_error<NcclVersionMismatch>(
            {"zero: the program was compiled with the header of NCCL ", nccl_version_text(header),
             " and runs with the library of NCCL ", nccl_version_text(library),
             "; the library must be of the same major version and not older. Compile with the "
             "header that lies beside the library "
             "(CMake: -DNCCL_ROOT=...), or let the loader find the newer library "
             "(LD_LIBRARY_PATH)."});
    }
}

} // namespace ZERO_NAMESPACE::cuda::detail
