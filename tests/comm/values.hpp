#pragma once

// Inputs and expected sums for tests of communicators, computed without the library's kernels.

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test {

constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31U);
}

/// @brief Returns element `index` of rank `rank`. Magnitudes differ by up to 2^12, so the order of
/// a sum shows in its bits.
template <class T>
T value_of(int rank, std::size_t index, std::size_t salt) noexcept {
    std::uint64_t const random =
        mix(mix(static_cast<std::uint64_t>(rank) * 1'000'003U + salt) + index);
    if constexpr (StorageType<T>) {
        float const mantissa = 1.0F + static_cast<float>(random & 0xffffU) / 65536.0F;
        float const power = static_cast<float>(std::uint64_t{1} << ((random >> 16U) % 12)) / 64.0F;
        return from_float<T>((random >> 32U) % 2 == 0 ? mantissa * power : -mantissa * power);
    } else {
        return static_cast<T>(random);
    }
}

template <class T>
std::vector<T> values_of(int rank, std::size_t elements, std::size_t salt) {
    std::vector<T> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        values[i] = value_of<T>(rank, i, salt);
    }
    return values;
}

/// @brief Returns the sum over the ranks in rank order, in float, rounded once.
template <class T>
T sum_of(int world, std::size_t index, std::size_t salt) noexcept {
    float sum = to_float(value_of<T>(0, index, salt));
    for (int rank = 1; rank < world; ++rank) {
        sum += to_float(value_of<T>(rank, index, salt));
    }
    return from_float<T>(sum);
}

template <class T>
std::vector<T> sums_of(int world, std::size_t begin, std::size_t end, std::size_t salt) {
    std::vector<T> sums(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
        sums[i - begin] = sum_of<T>(world, i, salt);
    }
    return sums;
}

/// @brief Returns the sums in two levels, as `Hierarchical` forms them: inside each group of G
/// ranks, then, after rounding, between the R groups.
template <class T>
std::vector<T> sums_in_levels(std::size_t inner_ranks, std::size_t outer_ranks, std::size_t begin,
                              std::size_t end, std::size_t salt) {
    std::vector<T> sums(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
        float between = 0.0F;
        for (std::size_t outer = 0; outer < outer_ranks; ++outer) {
            float inside = 0.0F;
            for (std::size_t inner = 0; inner < inner_ranks; ++inner) {
                auto const rank = static_cast<int>(inner * outer_ranks + outer);
                float const value = to_float(value_of<T>(rank, i, salt));
                inside = inner == 0 ? value : inside + value;
            }
            float const rounded = to_float(from_float<T>(inside));
            between = outer == 0 ? rounded : between + rounded;
        }
        sums[i - begin] = from_float<T>(between);
    }
    return sums;
}

template <class T>
bool equal_bits(std::vector<T> const& a, std::vector<T> const& b) noexcept {
    return a.size() == b.size()
           && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// @brief Returns the offsets of the extents.
inline std::vector<std::size_t> cuts_of(std::vector<std::size_t> const& extents) {
    std::vector<std::size_t> cuts(extents.size() + 1, 0);
    std::partial_sum(extents.begin(), extents.end(), cuts.begin() + 1);
    return cuts;
}

/// @brief Returns even and uneven cuts, empty extents, all elements on one rank, and no elements.
inline std::vector<std::vector<std::size_t>> families_of_cuts(std::size_t world) {
    std::vector<std::size_t> even(world, 64);
    std::vector<std::size_t> odd(world);
    std::vector<std::size_t> holes(world);
    std::vector<std::size_t> first(world, 0);
    std::vector<std::size_t> last(world, 0);
    for (std::size_t rank = 0; rank < world; ++rank) {
        odd[rank] = 1 + mix(world * 31 + rank) % 97;
        holes[rank] = rank % 2 == 0 ? 0 : 5 * rank;
    }
    first.front() = 129;
    last.back() = 1;
    return {cuts_of(even),  cuts_of(odd),  cuts_of(holes),
            cuts_of(first), cuts_of(last), cuts_of(std::vector<std::size_t>(world, 0))};
}

inline std::string to_text(std::vector<std::size_t> const& cuts) {
    std::string text = "cuts";
    for (std::size_t const cut : cuts) {
        text += ' ' + std::to_string(cut);
    }
    return text;
}

} // namespace zero::test
