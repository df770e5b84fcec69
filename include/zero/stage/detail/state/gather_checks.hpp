#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/hash.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// The values that a gather of whole parameters compares between ranks. Values of all ranks are in
/// rank order.
namespace ZERO_NAMESPACE::detail {

[[nodiscard]] inline std::uint64_t hash_of_indices(std::span<std::size_t const> indices) noexcept {
    Hash hash;
    for (std::size_t const index : indices) {
        hash.add(index);
    }
    return hash.value();
}

[[nodiscard]] inline std::uint64_t hash_of_bits(std::span<float const> values) noexcept {
    Hash hash;
    for (float const value : values) {
        hash.add(std::bit_cast<std::uint32_t>(value));
    }
    return hash.value();
}

/// @brief A value that differs between a rank and rank 0.
struct RankDifference {
    std::size_t value = 0; ///< index of the value
    std::size_t rank = 0;  ///< 0: there is none
};

/// @brief Returns the first value that differs between any rank and rank 0, and the first such
/// rank.
/// @param count values of each rank
[[nodiscard]] inline RankDifference first_difference(std::vector<std::uint64_t> const& all,
                                                     std::size_t count) noexcept {
    for (std::size_t value = 0; value < count; ++value) {
        for (std::size_t rank = 1; rank * count < all.size(); ++rank) {
            if (all[rank * count + value] != all[value]) {
                return {value, rank};
            }
        }
    }
    return {};
}

/// @brief Compares parameters, use and writer of a gather.
/// @param all three values of each rank @throws InvalidArgument naming the first rank that differs
[[gnu::cold]] inline void require_same_gather(std::vector<std::uint64_t> const& all,
                                              std::size_t own_rank) {
    RankDifference const found = first_difference(all, 3);
    if (found.rank != 0) {
        char const* const what = found.value == 0   ? "other parameters"
                                 : found.value == 1 ? "for another use"
                                                    : "with another writer";
        throw_error<InvalidArgument>({"zero: rank ", found.rank, " gathers ", what,
                                      " than rank 0 (rank ", own_rank,
                                      "); call gather() with the same arguments on every rank."});
    }
}

} // namespace ZERO_NAMESPACE::detail
