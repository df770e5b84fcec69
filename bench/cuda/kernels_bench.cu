#include "device_time.cuh"
#include "passes.cuh"

#include <zero/cuda/detail/kernels/tensor_kernels.cuh>

#include <cub/device/device_copy.cuh>
#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_reduce.cuh>
#include <thrust/iterator/transform_iterator.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// The passes of a step over the tensors of models with 16 million to 1.5 billion parameters. The
// twin of all is a copy, measured in the same run; some are compared with the algorithm of CUB that
// does most of the same work. No time is that of constant data.
namespace zero { // after a using-directive, cuda could be zero's or the toolkit's namespace

namespace {

using bench::elements_of;
using Device = cuda::Backend;

/// Moves bytes and computes nothing. Each row of the device is compared with it by bytes per
/// second.
void copy(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    bench::DeviceArray<float> const from(n);
    bench::DeviceArray<float> const to(n);
    bench::fill_normal(from.data(), n, bench::gradient_deviation);
    bench::time_on_device(state, 2 * n * sizeof(float), {{from.data(), n * sizeof(float)}},
                          [&](cudaStream_t stream) {
                              Device::copy_bytes(stream, to.data(), from.data(), n * sizeof(float));
                          });
}

/// Times a pass of passes.cuh.
template <class Pass, std::size_t... begin>
void pass(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    Pass const pass(bench::sizes_of(state), begin...);
    bench::time_on_device(state, pass.moved_bytes(), pass.inputs(),
                          [&](cudaStream_t stream) { pass.enqueue(stream); });
}

/// Times `call(memory, bytes of memory, stream)`, an algorithm of CUB. Called without memory, it
/// returns the number of bytes that it needs.
template <class Call>
void time_cub(benchmark::State& state, std::size_t moved_bytes, bench::TimedInput const& input,
              Call const& call) {
    std::size_t memory_bytes = 0;
    cuda::detail::check(call(nullptr, memory_bytes, nullptr), "CUB");
    bench::DeviceArray<char> const memory(memory_bytes);
    bench::time_on_device(state, moved_bytes, {input}, [&](cudaStream_t stream) {
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
    bench::fill_normal(tensors.data(), n, bench::gradient_deviation);
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
    time_cub(state, n * (sizeof(T) + sizeof(InBucket)), {tensors.data(), n * sizeof(T)},
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
    bench::fill_normal(gradients.data(), n, bench::gradient_deviation);
    time_cub(state, n * sizeof(A), {gradients.data(), n * sizeof(A)},
             [&](void* memory, std::size_t& memory_bytes, cudaStream_t stream) {
                 return cub::DeviceReduce::TransformReduce(
                     memory, memory_bytes, static_cast<A const*>(gradients.data()), sum.data(), n,
                     AddSquareSums{}, ToSquareSum{}, SquareSum{}, stream);
             });
}

[[maybe_unused]] bool const is_registered = [] {
    using bench::CodesPass;
    using bench::FlattenPass;
    using bench::GradientCodesPass;
    using bench::NormPass;
    using bench::SumPass;
    using bench::UpdatePass;
    bench::add("copy/cuda/twin", copy);
    bench::add("flatten/cuda_bfloat16/zero", pass<FlattenPass<bfloat16, bfloat16, true>>);
    bench::add("flatten/cuda_bfloat16/cub", cub_flatten<bfloat16, bfloat16>);
    bench::add("flatten/cuda_float32_to_bfloat16/zero", pass<FlattenPass<float, bfloat16, true>>);
    bench::add("flatten/cuda_float32_to_bfloat16/cub", cub_flatten<float, bfloat16>);
    bench::add("unflatten/cuda_bfloat16/zero", pass<FlattenPass<bfloat16, bfloat16, false>>);
    bench::add("sum/cuda_float32_2_ranks/zero", pass<SumPass<float>>);
    bench::add("sum/cuda_bfloat16_2_ranks/zero", pass<SumPass<bfloat16>>);
    bench::add("sum/cuda_bfloat16_4_ranks/zero", pass<SumPass<bfloat16, 4>>);
    bench::add("sum/cuda_bfloat16_4_ranks_in_tree/zero", pass<SumPass<bfloat16, 4, float, true>>);
    bench::add("norm/cuda_float32/zero", pass<NormPass<float>>);
    bench::add("norm/cuda_float32/cub", cub_norm<float>);
    bench::add("norm/cuda_bfloat16/zero", pass<NormPass<bfloat16>>);
    bench::add("norm/cuda_bfloat16/cub", cub_norm<bfloat16>);
    bench::add("update/cuda_two_states/adamw", pass<UpdatePass<>>);
    bench::add("update/cuda_whole_parameters/lamb", pass<UpdatePass<Lamb>>);
    bench::add("update/cuda_whole_parameters/muon", pass<UpdatePass<Muon>>);
    bench::add("encode/cuda_bfloat16_int8/zero", pass<CodesPass<Int8Blocks, bfloat16, true>>);
    bench::add("encode/cuda_bfloat16_int4/zero", pass<CodesPass<Int4Blocks, bfloat16, true>>);
    bench::add("encode/cuda_float32_int8/zero", pass<CodesPass<Int8Blocks, float, true>>);
    bench::add("decode/cuda_bfloat16_int8/zero", pass<CodesPass<Int8Blocks, bfloat16, false>>);
    bench::add("decode/cuda_bfloat16_int4/zero", pass<CodesPass<Int4Blocks, bfloat16, false>>);
    bench::add("encode/cuda_float32_int8_errors/zero", pass<GradientCodesPass<Int8Blocks, true>>);
    bench::add("encode/cuda_float32_int4_errors/zero", pass<GradientCodesPass<Int4Blocks, true>>);
    bench::add("decode/cuda_int8_4_ranks/zero", pass<GradientCodesPass<Int8Blocks, false>>);
    bench::add("decode/cuda_int4_4_ranks/zero", pass<GradientCodesPass<Int4Blocks, false>>);
    // Memory of the caller that begins one element after an alignment of 16 bytes.
    bench::add("flatten/cuda_bfloat16_odd/zero", pass<FlattenPass<bfloat16, bfloat16, true>, 1>);
    bench::add("norm/cuda_float32_odd/zero", pass<NormPass<float>, 1>);
    bench::add("norm/cuda_bfloat16_odd/zero", pass<NormPass<bfloat16>, 1>);
    bench::add("update/cuda_odd_gradients/adamw", pass<UpdatePass<>, 1>);
    return true;
}();

} // namespace

} // namespace zero
