#pragma once

#include "../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The operations of a `Communicator` and of its refinements.
enum class CollectiveKind : std::uint8_t {
    reduce_scatter,
    all_gather,
    all_reduce,
    broadcast,
    integers,
    exchange
};

/// @brief The number of kinds.
inline constexpr std::size_t collective_kinds = 6;

/// @brief Returns the name of a kind for messages.
constexpr char const* name_of(CollectiveKind kind) noexcept {
    constexpr std::array<char const*, collective_kinds> names{
        "reduce-scatter",         "all-gather", "all-reduce", "broadcast",
        "all-reduce of integers", "exchange"};
    auto const index = static_cast<std::size_t>(kind);
    return index < names.size() ? names[index] : "unknown"; // a peer may send anything
}

/// @brief The traffic of one rank in collectives of one kind.
struct CollectiveCount {
    std::uint64_t calls = 0;    ///< number of collectives
    std::uint64_t elements = 0; ///< elements in all collectives
    std::uint64_t bytes = 0;    ///< elements times their size

    friend bool operator==(CollectiveCount const&, CollectiveCount const&) = default;
};

/// @brief One count per kind of collective, of the payload: `Recording` fills it. What then passes
/// between ranks is in `layout/communication_model.hpp`.
struct TrafficCount {
    std::array<CollectiveCount, collective_kinds> kinds{}; ///< indexed by the kind

    /// @brief Returns the count of one kind.
    [[nodiscard]] CollectiveCount const& operator[](CollectiveKind kind) const noexcept {
        return kinds[static_cast<std::size_t>(kind)];
    }

    /// @brief Counts one collective.
    void add(CollectiveKind kind, std::size_t elements, std::size_t element_bytes) noexcept {
        CollectiveCount& count = kinds[static_cast<std::size_t>(kind)];
        ++count.calls;
        count.elements += elements;
        count.bytes += elements * element_bytes;
    }
};

} // namespace ZERO_NAMESPACE
