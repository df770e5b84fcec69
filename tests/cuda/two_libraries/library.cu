// One of two shared libraries that use the same kernel, compiled for different architectures;
// ZERO_LIBRARY names its functions. The second one wraps its CUB in a namespace of its own, as
// programs do that contain two versions of CUB.

#include <zero/cuda/backend.cuh>

// Including the library moves no CUB, and does not wrap what the program has not wrapped.
#if defined(CUB_WRAPPED_NAMESPACE)
using OwnReduce = CUB_WRAPPED_NAMESPACE::cub::BlockReduce<int, 128>;
#else
using OwnReduce = ::cub::BlockReduce<int, 128>;
#if defined(THRUST_WRAPPED_NAMESPACE) || defined(THRUST_CUB_WRAPPED_NAMESPACE)
#error "zero changed the namespace of the program's Thrust"
#endif
#endif
static_assert(sizeof(OwnReduce::TempStorage) > 0);

#define ZERO_JOIN_NAMES(a, b) a##b
#define ZERO_NAME(library, name) ZERO_JOIN_NAMES(library, name)

extern "C" void const* ZERO_NAME(ZERO_LIBRARY, _kernel)();
extern "C" void ZERO_NAME(ZERO_LIBRARY, _scale)(float* out, float const* in, std::size_t elements,
                                                float factor, cudaStream_t stream);

extern "C" void ZERO_NAME(ZERO_LIBRARY, _reduce)(zero::cuda::TableRange<zero::CopySlice<float>>,
                                                 zero::cuda::TableRange<zero::NormSlice<float>>,
                                                 float* bucket, zero::ops::NormSum* norm,
                                                 cudaStream_t stream);

// Runs on CUB: each library contains CUB for its own architectures.
extern "C" __attribute__((visibility("default"))) void
ZERO_NAME(ZERO_LIBRARY, _reduce)(zero::cuda::TableRange<zero::CopySlice<float>> tensors,
                                 zero::cuda::TableRange<zero::NormSlice<float>> slices,
                                 float* bucket, zero::ops::NormSum* norm, cudaStream_t stream) {
    zero::cuda::Backend::copy_to_bucket(stream, tensors, bucket);
    zero::cuda::Backend::add_to_norms(stream, slices, zero::NormKind::l2, norm);
}

extern "C" __attribute__((visibility("default"))) void const* ZERO_NAME(ZERO_LIBRARY, _kernel)() {
    return reinterpret_cast<void const*>(
        static_cast<void (*)(float*, float const*, std::size_t, float)>(
            &zero::cuda::detail::convert_kernel<true, float, float>));
}

extern "C" __attribute__((visibility("default"))) void
ZERO_NAME(ZERO_LIBRARY, _scale)(float* out, float const* in, std::size_t elements, float factor,
                                cudaStream_t stream) {
    zero::cuda::Backend::convert(stream, out, in, elements, factor);
}
