#pragma once

#include "../kernels.hpp"

#include "../../core/convert.hpp"
#include "../../ops/norm.hpp"
#include "../../ops/number.hpp"
#include "cast_loops.hpp"
#include "copy_loop.hpp"
#include "exponent_bins.hpp"
#include "lanes_avx512.hpp"
#include "run_loop.hpp"
#include "sum_loop.hpp"

#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::host::detail {

/// Adds the number of zeros of a range to `count`. Used by `host::count_zeros`.
template <StorageType T>
struct CountLoop {
    T const* values;
    std::size_t n;
    std::int64_t* count;

    /// The lanes only choose the instruction set: the compiler makes vectors of a fixed length.
    template <class>
    [[gnu::always_inline]] void operator()() const noexcept {
        constexpr std::size_t step = 128;
        std::int64_t zeros = 0;
        std::size_t const whole = n - n % step;
        for (std::size_t begin = 0; begin < whole; begin += step) {
            std::uint32_t some = 0;
            for (std::size_t i = 0; i < step; ++i) {
                some += ops::is_zero(values[begin + i]) ? 1U : 0U;
            }
            zeros += some;
        }
        for (std::size_t i = whole; i < n; ++i) {
            zeros += ops::is_zero(values[i]) ? 1 : 0;
        }
        *count += zeros;
    }
};

/// Adds the magnitudes to a maximum norm.
template <StorageType T>
void find_largest(T const* values, std::size_t n, ops::NormSum& result) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
        result.add_magnitude(to_float(values[i]));
    }
}

} // namespace ZERO_NAMESPACE::host::detail

namespace ZERO_NAMESPACE::host {

template <StorageType To, StorageType From>
void detail::convert(To* out, From const* in, std::size_t n, float factor,
                     std::size_t moved_bytes) noexcept {
    if constexpr (std::is_same_v<To, From>) {
        if (factor == 1.0F) {
            if (n != 0 && out != in) {
                copy(static_cast<void*>(out), in, n * sizeof(To), moved_bytes);
            }
            return;
        }
    }
    bool const streams = moved_bytes >= streaming_copy_bytes && static_cast<void const*>(out) != in;
    if (factor != 1.0F && streams) {
        run(ConvertLoop<To, From, true, true>{out, in, n, factor});
    } else if (factor != 1.0F) {
        run(ConvertLoop<To, From, true, false>{out, in, n, factor});
    } else if (streams) {
        run(ConvertLoop<To, From, false, true>{out, in, n, factor});
    } else {
        run(ConvertLoop<To, From, false, false>{out, in, n, factor});
    }
}

template <StorageType To, StorageType From>
void convert(To* out, From const* in, std::size_t n, float factor) noexcept {
    detail::convert(out, in, n, factor, n * (sizeof(To) + sizeof(From)));
}

template <StorageType To, StorageType From>
void accumulate(To* sum, From const* in, std::size_t n) noexcept {
    detail::run(detail::AccumulateLoop<To, From>{sum, in, n});
}

template <StorageType T>
void sum_ranks(T* out, T const* const* peers, int world, std::size_t n) noexcept {
    sum_ranks(out, peers, world, n, false);
}

template <StorageType A, StorageType T>
void sum_ranks(A* sum, T const* const* peers, int world, std::size_t n, bool is_added) noexcept {
    if (world == 1) {
        is_added ? accumulate(sum, peers[0], n) : convert(sum, peers[0], n, 1.0F);
        return;
    }
    if (is_added) {
        detail::run(detail::SumRanksLoop<A, T, false, true>{sum, peers, world, n});
        return;
    }
    std::size_t const moved = n * (static_cast<std::size_t>(world) * sizeof(T) + sizeof(A));
    bool streams = detail::is_worth_streaming(sum, moved);
    for (int rank = 0; rank < world; ++rank) {
        streams = streams && static_cast<void const*>(sum) != peers[rank];
    }
    if (streams) {
        detail::run(detail::SumRanksLoop<A, T, true, false>{sum, peers, world, n});
    } else {
        detail::run(detail::SumRanksLoop<A, T, false, false>{sum, peers, world, n});
    }
}

template <StorageType A, StorageType T>
void sum_tree(ops::TreeSum<A> const& sum, T const* const* peers, int world,
              std::size_t n) noexcept {
    if (world == 1 && sum.held.count == 0) {
        convert(sum.out, peers[0], n, 1.0F);
        return;
    }
    std::size_t const moved = n * (static_cast<std::size_t>(world) * sizeof(T) + sizeof(A));
    bool streams = sum.held.count == 0 && detail::is_worth_streaming(sum.out, moved);
    for (int rank = 0; rank < world; ++rank) {
        streams = streams && static_cast<void const*>(sum.out) != peers[rank];
    }
    if (streams) {
        detail::run(detail::SumTreeLoop<A, T, true>{sum, peers, world, n});
    } else {
        detail::run(detail::SumTreeLoop<A, T, false>{sum, peers, world, n});
    }
}

template <StorageType T>
void inspect(T const* values, std::size_t n, std::int64_t first_index,
             ops::Inspection& result) noexcept {
    detail::run_widest(detail::InspectLoop<T>{values, n, first_index, &result});
}

template <StorageType T>
void add_to_norm(NormKind kind, T const* values, std::size_t n, std::int64_t first_index,
                 ops::NormSum& result) noexcept {
    switch (kind) {
    case NormKind::l1: detail::ExponentBins<1>::add(values, n, first_index, result.exact); break;
    case NormKind::l2: inspect(values, n, first_index, result.exact); break;
    case NormKind::infinity: detail::find_largest(values, n, result); break;
    }
}

template <StorageType T>
void count_zeros(T const* values, std::size_t n, std::int64_t& count) noexcept {
    detail::run(detail::CountLoop<T>{values, n, &count});
}

} // namespace ZERO_NAMESPACE::host
