#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "flight.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief A part of a buffer, in bytes.
struct Part {
    std::size_t offset;
    std::size_t bytes;
};

/// @brief The extents of a collective, cut into rounds of at most `piece` elements of each extent.
struct Extents {
    Extents(Flight const& of, std::size_t piece_elements) noexcept
        : flight(&of), piece(piece_elements) {
        std::size_t largest = 0;
        for (std::size_t rank = 0; rank + 1 < of.cuts.size(); ++rank) {
            largest = larger(largest, of.cuts[rank + 1] - of.cuts[rank]);
        }
        rounds = (largest + piece - 1) / piece;
    }

    /// @brief Returns the part of a rank's extent that a round moves.
    [[nodiscard]] Part part(std::size_t rank, std::size_t round) const noexcept {
        std::size_t const begin =
            smaller(flight->cuts[rank] + round * piece, flight->cuts[rank + 1]);
        std::size_t const end = smaller(begin + piece, flight->cuts[rank + 1]);
        return {begin * flight->element_bytes, (end - begin) * flight->element_bytes};
    }

    /// @brief Returns a rank's extent.
    [[nodiscard]] Part whole(std::size_t rank) const noexcept {
        return {flight->cuts[rank] * flight->element_bytes,
                (flight->cuts[rank + 1] - flight->cuts[rank]) * flight->element_bytes};
    }

    Flight const* flight;
    std::size_t piece;
    std::size_t rounds = 0;
};

/// @brief Returns the number of elements per message with which `messages` messages fit into
/// `bytes`. It is a multiple of 64 where possible, so that kernels find whole vectors.
[[nodiscard]] inline std::size_t piece_of(std::size_t bytes, std::size_t element_bytes,
                                          std::size_t messages) noexcept {
    std::size_t const elements = bytes / (element_bytes * larger<std::size_t>(1, messages));
    return elements < 64 ? elements : elements / 64 * 64;
}

/// @brief Calls `post(round)` for each round, and `take(round)`, which waits for it, after the next
/// one was posted. So two rounds are in flight at a time.
template <class Post, class Take>
void in_rounds(std::size_t rounds, Post const& post, Take const& take) {
    for (std::size_t number = 0; number <= rounds && rounds != 0; ++number) {
        if (number < rounds) {
            post(number);
        }
        if (number > 0) {
            take(number - 1);
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
