#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Records the order in which the units of this rank first become ready in a step, in any of
/// its micro-steps. An engine uses it to rebuild its buckets.
class ReadyOrderRecorder {
public:
    /// @param is_wanted if false, nothing is recorded
    [[gnu::cold]] ReadyOrderRecorder(std::size_t units, bool is_wanted);

    [[nodiscard]] bool is_wanted() const noexcept { return !_is_noted.empty(); }

    void begin_step() noexcept;
    void note(std::size_t unit);

    /// @brief Returns all units. Those that never became ready come last, in reverse order of use,
    /// as at the end of a micro-step. Call it once per step.
    [[nodiscard]] std::vector<std::size_t> const& complete();

    /// @brief Stops recording.
    void stop();

private:
    std::vector<std::size_t> _units;
    std::vector<char> _is_noted; ///< by unit; empty if nothing is recorded
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "ready_order_recorder.ipp"
#endif
