// One of two shared libraries that use the same kernel, compiled for different architectures;
// ZERO_LIBRARY names its functions.

#include <zero/cuda/backend.cuh>

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
