// The content of zero::cuda_compiled: the operations of cuda::Backend whose kernels depend only on
// element types, for every pair of types that a model can have.

#include <zero/core/storage_types.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/cuda/detail/kernels/element_operations.tpp>

#define ZERO_INSTANTIATE(T)                                                                        \
    template void Backend::sum_ranks(Backend::Queue, T*, T const* const*, int, std::size_t);       \
    template void Backend::inspect(Backend::Queue, TableRange<InspectSlice<T>> const&,             \
                                   ops::Inspection*);                                              \
    template void Backend::add_to_norms(Backend::Queue, TableRange<NormSlice<T>> const&, NormKind, \
                                        ops::NormSum*);                                            \
    template void Backend::count_zeros(Backend::Queue, TableRange<InspectSlice<T>> const&,         \
                                       std::int64_t*);                                             \
    ZERO_INSTANTIATE_PAIR(T, float)                                                                \
    ZERO_INSTANTIATE_PAIR(T, bfloat16)                                                             \
    ZERO_INSTANTIATE_PAIR(T, float16)

#define ZERO_INSTANTIATE_PAIR(T, U)                                                                \
    template void Backend::convert(Backend::Queue, T*, U const*, std::size_t, float);              \
    template void Backend::accumulate(Backend::Queue, T*, U const*, std::size_t);                  \
    template void Backend::copy_from_bucket(Backend::Queue, TableRange<CopySlice<T>> const&,       \
                                            U const*);                                             \
    template void Backend::copy_to_bucket(Backend::Queue, TableRange<CopySlice<T>> const&, U*);

namespace ZERO_NAMESPACE::cuda::ZERO_CUDA_NAMESPACE {
ZERO_INSTANTIATE(float)
ZERO_INSTANTIATE(bfloat16)
ZERO_INSTANTIATE(float16)
template void Backend::combine_integers(Backend::Queue, std::int64_t*, std::int64_t const* const*,
                                        int, std::size_t, std::size_t);
} // namespace ZERO_NAMESPACE::cuda::ZERO_CUDA_NAMESPACE
