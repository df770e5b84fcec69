#include "device_time.cuh"
#include "passes.cuh"

#include <cub/device/device_copy.cuh>
#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_reduce.cuh>
#include <thrust/iterator/transform_iterator.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// The passes of a step over the tensors of models with 16 million to 1.5 billion parameters. Each
// is compared with a twin that only moves the same bytes, and with the algorithm of CUB that does
// most of the same work.
namespace zero { // after a using-directive, cuda could be zero's or the toolkit's namespace

namespace {

using bench::elements_of;
using Device = cuda::Backend;

template <class T>
void copy_twin(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    bench::DeviceArray<T> const from(n);
    bench::DeviceArray<T> const to(n);
    bench::time_on_device(state, 2 * n * sizeof(T), [&](cudaStream_t stream) {
        Device::copy_bytes(stream, to.data(), from.data(), n * sizeof(T));
    });
}

template <class T, class InBucket, bool to_bucket, std::size_t begin = 0>
void flatten(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    bench::FlattenPass<T, InBucket, to_bucket> const pass(bench::sizes_of(state), begin);
    bench::time_on_device(state, pass.moved_bytes(),
                          [&](cudaStream_t stream) { pass.enqueue(stream); });
}

/// Times `call(memory, bytes of memory, stream)`, an algorithm of CUB. Called without memory, it
/// returns the number of bytes that it needs.
template <class Call>
void time_cub(benchmark::State& state, std::size_t moved_bytes, Call const& call) {
    std::size_t memory_bytes = 0;
    cuda::detail::check(call(nullptr, memory_bytes, nullptr), "CUB");
    bench::DeviceArray<char> const memory(memory_bytes);
    bench::time_on_device(state, moved_bytes, [&](cudaStream_t stream) {
        cuda::detail::check(call(memory.data(), memory_bytes, stream), "CUB");
    });
}

template <class To>
struct Cast {
    template <class From>
    __host__ __device__ To operator()(From value) const {
        return from_float<To>(to_float(value));
    }
};

/// Does the work of `flatten`: as bytes if nothing is cast, otherwise through an iterator that
/// casts.
template <class T, class InBucket>
void cub_flatten(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    constexpr bool casts = !std::is_same_v<T, InBucket>;
    using From = std::conditional_t<casts, thrust::transform_iterator<Cast<InBucket>, T const*>,
                                    void const*>;
    using To = std::conditional_t<casts, InBucket*, void*>;
    auto const sizes = bench::sizes_of(state);
    std::size_t const n = elements_of(sizes);
    bench::DeviceArray<T> const tensors(n);
    bench::DeviceArray<InBucket> const bucket(n);
    std::vector<From> from;
    std::vector<To> to;
    std::vector<std::size_t> counts; // counts of bytes, or of elements
    std::size_t begin = 0;
    for (std::size_t const size : sizes) {
        from.push_back(From(tensors.data() + begin));
        to.push_back(bucket.data() + begin);
        counts.push_back(casts ? size : size * sizeof(T));
        begin += size;
    }
    bench::DeviceArray<From> const device_from(from);
    bench::DeviceArray<To> const device_to(to);
    bench::DeviceArray<std::size_t> const device_counts(counts);
    auto const tensor_count = static_cast<std::int64_t>(sizes.size());
    time_cub(state, n * (sizeof(T) + sizeof(InBucket)),
             [&](void* memory, std::size_t& memory_bytes, cudaStream_t stream) {
                 if constexpr (casts) {
                     return cub::DeviceCopy::Batched(memory, memory_bytes, device_from.data(),
                                                     device_to.data(), device_counts.data(),
                                                     tensor_count, stream);
                 } else {
                     return cub::DeviceMemcpy::Batched(memory, memory_bytes, device_from.data(),
                                                       device_to.data(), device_counts.data(),
                                                       tensor_count, stream);
                 }
             });
}

template <class A>
void norm_twin(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    bench::DeviceArray<A> const gradients(n);
    bench::DeviceArray<unsigned> const sum(1);
    bench::time_on_device(state, n * sizeof(A), [&](cudaStream_t stream) {
        bench::read(stream, gradients.data(), n * sizeof(A), sum.data());
    });
}

template <class A, std::size_t begin = 0>
void norm(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    bench::NormPass<A> const pass(bench::sizes_of(state), begin);
    bench::time_on_device(state, pass.moved_bytes(),
                          [&](cudaStream_t stream) { pass.enqueue(stream); });
}

struct SquareSum {
    double squares;
    std::uint64_t non_finite;
};

struct AddSquareSums {
    __host__ __device__ SquareSum operator()(SquareSum const& a, SquareSum const& b) const {
        return {a.squares + b.squares, a.non_finite + b.non_finite};
    }
};

struct ToSquareSum {
    template <class A>
    __host__ __device__ SquareSum operator()(A value) const {
        double const wide = to_float(value);
        double const square = wide * wide;
        return square - square == 0.0 ? SquareSum{square, 0} : SquareSum{0.0, 1};
    }
};

/// The sum of squares and the count of non-finite elements. Other cuts give another sum, and the
/// index of the first non-finite element is missing.
template <class A>
void cub_norm(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    bench::DeviceArray<A> const gradients(n);
    bench::DeviceArray<SquareSum> const sum(1);
    time_cub(state, n * sizeof(A),
             [&](void* memory, std::size_t& memory_bytes, cudaStream_t stream) {
                 return cub::DeviceReduce::TransformReduce(
                     memory, memory_bytes, static_cast<A const*>(gradients.data()), sum.data(), n,
                     AddSquareSums{}, ToSquareSum{}, SquareSum{}, stream);
             });
}

/// @tparam begin elements before the gradients
template <std::size_t begin = 0>
void update(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    bench::UpdatePass const pass(bench::sizes_of(state), begin);
    bench::time_on_device(state, pass.moved_bytes(),
                          [&](cudaStream_t stream) { pass.enqueue(stream); });
}

[[maybe_unused]] bool const is_registered = [] {
    bench::add("flatten/cuda_bfloat16/twin", copy_twin<bfloat16>);
    bench::add("flatten/cuda_bfloat16/zero", flatten<bfloat16, bfloat16, true>);
    bench::add("flatten/cuda_bfloat16/cub", cub_flatten<bfloat16, bfloat16>);
    bench::add("flatten/cuda_float32_to_bfloat16/twin",
               copy_twin<float>); // more bytes, so compared by bytes per second
    bench::add("flatten/cuda_float32_to_bfloat16/zero", flatten<float, bfloat16, true>);
    bench::add("flatten/cuda_float32_to_bfloat16/cub", cub_flatten<float, bfloat16>);
    bench::add("unflatten/cuda_bfloat16/twin", copy_twin<bfloat16>);
    bench::add("unflatten/cuda_bfloat16/zero", flatten<bfloat16, bfloat16, false>);
    bench::add("norm/cuda_float32/twin", norm_twin<float>);
    bench::add("norm/cuda_float32/zero", norm<float>);
    bench::add("norm/cuda_float32/cub", cub_norm<float>);
    bench::add("norm/cuda_bfloat16/twin", norm_twin<bfloat16>);
    bench::add("norm/cuda_bfloat16/zero", norm<bfloat16>);
    bench::add("norm/cuda_bfloat16/cub", cub_norm<bfloat16>);
    bench::add("update/cuda_two_states/twin",
               copy_twin<float>); // fewer bytes, so compared by bytes per second
    bench::add("update/cuda_two_states/adamw", update<>);
    // Memory of the caller that begins one element after an alignment of 16 bytes.
    bench::add("flatten/cuda_bfloat16_odd/twin", copy_twin<bfloat16>);
    bench::add("flatten/cuda_bfloat16_odd/zero", flatten<bfloat16, bfloat16, true, 1>);
    bench::add("norm/cuda_float32_odd/twin", norm_twin<float>);
    bench::add("norm/cuda_float32_odd/zero", norm<float, 1>);
    bench::add("norm/cuda_bfloat16_odd/twin", norm_twin<bfloat16>);
    bench::add("norm/cuda_bfloat16_odd/zero", norm<bfloat16, 1>);
    bench::add("update/cuda_odd_gradients/twin", copy_twin<float>);
    bench::add("update/cuda_odd_gradients/adamw", update<1>);
    return true;
}();

} // namespace

} // namespace zero
