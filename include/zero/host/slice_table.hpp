#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "queue.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace ZERO_NAMESPACE::host {

/// @brief A table of slices that commands read; made once, when an engine is constructed. It stays
/// where it is as long as it lives.
template <class Slice>
class SliceTable {
public:
    using Range = std::span<Slice const>; ///< what commands take: some consecutive slices

    SliceTable() = default;

    /// @param slices are kept; the backend's memory is not needed, because the host's commands read
    /// them there
    SliceTable(Queue*, MemoryResource&, zero::detail::List<Slice> slices)
        : _slices(std::move(slices)) {}

    /// @brief As they were given.
    [[nodiscard]] zero::detail::List<Slice> const& slices() const noexcept { return _slices; }

    /// @brief All slices, for a command.
    [[nodiscard]] Range all() const noexcept { return zero::detail::as_span(_slices); }

    /// @brief Some consecutive ones, for a command.
    [[nodiscard]] Range range(std::size_t first, std::size_t count) const noexcept {
        return {_slices.data() + first, count};
    }

    /// @brief Bytes of the backend's memory beside the slices themselves: none.
    [[nodiscard]] static constexpr std::size_t size_bytes() noexcept { return 0; }

private:
    zero::detail::List<Slice> _slices;
};

} // namespace ZERO_NAMESPACE::host
