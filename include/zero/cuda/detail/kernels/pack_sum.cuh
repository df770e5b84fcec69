#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "chunk.hpp"
#include "config.cuh"
#include "cub.cuh"
#include "exact_run.cuh"
#include "exact_sum.cuh"
#include "launch.cuh"

#include <cstddef>
#include <cstdint>

/// Sums and counts that the threads of a block form over packs of elements, for each kind of norm.
namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Elements that are infinite or NaN.
struct NonFinite {
    unsigned long long count; ///< below 2^32 in one thread
    long long first;          ///< smallest index; `ops::Inspection::none` if there is none
};

/// @brief Combines the findings of two threads.
struct MergeNonFinite {
    __device__ NonFinite operator()(NonFinite const& a, NonFinite const& b) const {
        return {a.count + b.count, a.first < b.first ? a.first : b.first};
    }
};

/// @brief The exact sum of |x| (l1) or x^2 (l2) of one thread, over packs. Elements that are not
/// finite are counted and add nothing.
template <NormKind kind>
class PackSum {
    using ReduceNonFinite = cub::BlockReduce<NonFinite, block_threads>;
    using Run = ExactRun<kind>;

public:
    /// @brief Shared memory of a block.
    struct Shared {
        BlockDigits digits;
        typename ReduceNonFinite::TempStorage non_finite;
    };

    /// All threads of the block call it.
    __device__ explicit PackSum(Shared& shared)
        : _shared(&shared), _sum(shared.digits), _rest(shared.digits) {
        shared.digits.clear();
        __syncthreads();
    }

    /// @param index index of the first element, for `first_non_finite`
    /// @tparam apart distance between the elements
    template <std::size_t apart>
    __device__ void add(float (&x)[pack_elements], long long index) {
        typename Run::Range const range(x);
        if (!_run.takes(range)) {
            if (range.largest == 0) {
                return; // only zeros
            }
            _run.end(_sum, _rest);
            if (range.largest_exponent() == 255) {
                drop_non_finite<apart>(x, index);
                add_each(x);
                return;
            }
            _run.begin(range);
            if (!_run.takes(range)) {
                add_each(x);
                return;
            }
        }
        _run.add(x);
    }

    /// Returns how many chunks may be added before the next call of `end_chunks`, at least 1.
    [[nodiscard]] __device__ unsigned room() const {
        return Run::most_chunks - _chunks % Run::most_chunks;
    }

    /// All threads of the block call it after consecutive chunks that were added in one loop.
    __device__ void end_chunks(unsigned count) {
        _chunks += count;
        if (_chunks == most_chunks) {
            flush();
        } else if (_chunks % Run::most_chunks == 0) {
            _run.end(_sum, _rest);
        }
    }

    /// Adds the sum of the block to the result, and clears it. All threads of the block call it.
    __device__ void move_to(ops::Inspection& result) {
        flush();
        if (__syncthreads_or(_non_finite != 0 ? 1 : 0) != 0) {
            NonFinite const all = ReduceNonFinite(_shared->non_finite)
                                      .Reduce(NonFinite{_non_finite, _first}, MergeNonFinite{});
            if (threadIdx.x == 0) {
                atomicAdd(
                    reinterpret_cast<unsigned long long*>(&result.sums[ops::Inspection::digits]),
                    all.count);
                atomicMin(reinterpret_cast<long long*>(&result.first_non_finite), all.first);
            }
            _non_finite = 0;
            _first = ops::Inspection::none;
        }
        _shared->digits.move_to(result);
        __syncthreads();
    }
    __device__ void move_to(ops::NormSum& result) { move_to(result.exact); }

private:
    /// Chunks between two flushes, in whole runs.
    static constexpr unsigned most_chunks =
        ThreadSum::most / Run::most_packs_of_chunk / Run::most_chunks * Run::most_chunks;

    __device__ void flush() {
        _run.end(_sum, _rest);
        _sum.flush();
        _rest.flush();
        _chunks = 0;
    }

    /// Adds to the digits of the block, which is slow but rare.
    __device__ void add_each(float const (&x)[pack_elements]) {
#pragma unroll
        for (float const value : x) {
            auto const wide = static_cast<double>(value);
            _shared->digits.add(kind == NormKind::l1 ? fabs(wide) : ops::mul(wide, wide));
        }
    }

    template <std::size_t apart>
    __device__ void drop_non_finite(float (&x)[pack_elements], long long index) {
#pragma unroll
        for (unsigned i = 0; i < pack_elements; ++i) {
            if (!(fabsf(x[i]) < __uint_as_float(0x7f800000U))) {
                ++_non_finite;
                long long const at = index + static_cast<long long>(i * apart);
                _first = at < _first ? at : _first;
                x[i] = 0.0F;
            }
        }
    }

    Shared* _shared;
    ThreadSum _sum;
    ThreadSum _rest;
    Run _run;
    unsigned _chunks = 0;     ///< chunks since the last flush
    unsigned _non_finite = 0; ///< at most 2^40 elements over the 256 threads of a block
    long long _first = ops::Inspection::none;
};

/// @brief The largest magnitude of one thread, over packs.
class PackMaximum {
    using Reduce = cub::BlockReduce<unsigned, block_threads>;

public:
    /// @brief Shared memory of a block.
    using Shared = typename Reduce::TempStorage;

    __device__ explicit PackMaximum(Shared& shared) : _shared(&shared) {}

    template <std::size_t>
    __device__ void add(float (&x)[pack_elements], long long) {
#pragma unroll
        for (float const value : x) {
            // Bits order as magnitudes do. They are complemented because CUB has one instruction
            // for a minimum.
            unsigned const below = ~(__builtin_bit_cast(std::uint32_t, value) & 0x7fffffffU);
            _least = below < _least ? below : _least;
        }
    }

    /// As `for_packs` counts elements in 32 bits.
    [[nodiscard]] __device__ unsigned room() const { return 64; }
    __device__ void end_chunks(unsigned) {}

    /// Updates the result with the largest magnitude of the block, and forgets it. All threads of
    /// the block call it.
    __device__ void move_to(ops::NormSum& result) {
        unsigned const least = Reduce(*_shared).Reduce(_least, Least{});
        if (threadIdx.x == 0) {
            atomicMin(reinterpret_cast<long long*>(&result.negative_largest),
                      -static_cast<long long>(~least));
        }
        _least = ~0U;
        __syncthreads(); // the next call uses the same memory
    }

private:
    Shared* _shared;
    unsigned _least = ~0U;
};

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE
