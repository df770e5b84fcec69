#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../collective_tag.hpp"
#include "../communicator.hpp"
#include "../traffic_count.hpp"
#include "collective_call.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief The place of a rank in a group: checks the arguments of each operation of a
/// `Communicator` and returns the call. Used by all transports.
///
/// Every function throws InvalidArgument that names the operation, the rank and what is wrong:
/// cuts that do not fit the group, a root outside it, or a null pointer for elements.
struct GroupPlace {
    std::size_t rank;
    std::size_t world;

    /// @brief Returns the elements of this rank's extent. Precondition: there are W + 1 cuts.
    [[nodiscard]] std::size_t own(std::span<std::size_t const> cuts) const noexcept {
        return cuts[rank + 1] - cuts[rank];
    }

    /// @brief Checks a reduce-scatter: the rank sends all extents and receives its own.
    [[nodiscard]] CollectiveCall reduce_scatter(DType type, void const* send, void const* receive,
                                                std::span<std::size_t const> cuts,
                                                CollectiveTag tag) const;

    /// @brief Checks the pieces that a rank sends to such a reduce-scatter. O(pieces).
    void require_pieces(std::span<SentPiece const> pieces, std::span<std::size_t const> cuts,
                        CollectiveTag const& tag) const;

    /// @brief Checks an all-gather: the rank sends its own extent and receives all.
    [[nodiscard]] CollectiveCall all_gather(DType type, void const* send, void const* receive,
                                            std::span<std::size_t const> cuts,
                                            CollectiveTag tag) const;

    /// @brief Checks an all-reduce: the rank sends and receives all extents.
    [[nodiscard]] CollectiveCall all_reduce(DType type, void const* send, void const* receive,
                                            std::span<std::size_t const> cuts,
                                            CollectiveTag tag) const;

    /// @brief Checks an exchange: the rank sends all extents and receives W pieces of its own,
    /// into other memory.
    [[nodiscard]] CollectiveCall exchange(DType type, void const* send, void const* receive,
                                          std::span<std::size_t const> cuts,
                                          CollectiveTag tag) const;

    /// @brief Checks a broadcast.
    [[nodiscard]] CollectiveCall broadcast(DType type, void const* buffer, std::size_t elements,
                                           int root, CollectiveTag tag) const;

    /// @brief Checks an all-reduce of integers.
    [[nodiscard]] CollectiveCall integers(std::int64_t const* values, std::size_t elements,
                                          IntegerReduction reduction, CollectiveTag tag) const;

    /// @brief Checks an all-reduce of integers of which the first `sums` are summed, and the next
    /// `minima` minimised.
    [[nodiscard]] CollectiveCall integers(std::int64_t const* values, std::size_t sums,
                                          std::size_t minima, CollectiveTag tag) const;

private:
    [[nodiscard]] CollectiveCall cut_call(CollectiveKind kind, DType type,
                                          std::span<std::size_t const> cuts,
                                          CollectiveTag tag) const;
    void require_memory(CollectiveCall const& call, void const* memory, std::size_t elements) const;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "group_place.ipp"
#endif
