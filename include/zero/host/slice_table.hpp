#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "queue.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace ZERO_NAMESPACE::host {

/// @brief A table of slices that commands read. Owns the slices, at a stable address; an engine
/// creates it when it is constructed.
template <class Slice>
class SliceTable {
public:
    using Range = std::span<Slice const>; ///< consecutive slices, the argument of commands

    SliceTable() = default;

    /// @brief Takes the slices. The queue and the memory of the backend are not used, because host
    /// commands read the slices in place.
    SliceTable(Queue*, MemoryResource&, zero::detail::List<Slice> slices)
        : _slices(std::move(slices)) {}

    /// @brief Returns the slices in the order in which they were given.
    [[nodiscard]] zero::detail::List<Slice> const& slices() const noexcept { return _slices; }

    /// @brief Returns all slices, for a command.
    [[nodiscard]] Range all() const noexcept { return zero::detail::as_span(_slices); }

    /// @brief Returns `count` slices from number `first` on, for a command.
    [[nodiscard]] Range range(std::size_t first, std::size_t count) const noexcept {
        return {_slices.data() + first, count};
    }

    /// @brief Returns the bytes of the backend's memory that the table uses: none.
    [[nodiscard]] static constexpr std::size_t size_bytes() noexcept { return 0; }

private:
    zero::detail::List<Slice> _slices;
};

} // namespace ZERO_NAMESPACE::host
