#include <zero/cuda/backend.cuh>

#include <cstdio>
#include <vector>

// Linked with zero::cuda_compiled: this file sees declarations where others instantiate kernels.

#if defined(CUB_VERSION) || defined(THRUST_VERSION)
#error "a unit that links zero::cuda_compiled includes CUB"
#endif

using Device = zero::cuda::Backend;

namespace {

/// Waits, because the tables of the caller must outlive the kernels that read them.
void wait(cudaStream_t stream) {
    zero::cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

template <class To, class From>
void run_pair(cudaStream_t stream, To* to, From* from) {
    Device::convert(stream, to, static_cast<From const*>(from), 8, 0.5F);
    Device::accumulate(stream, to, static_cast<From const*>(from), 8);
    Device::SliceTable<zero::CopySlice<To>> const table(
        stream, Device::default_memory(), zero::detail::List<zero::CopySlice<To>>{{to, 0, 8}});
    Device::copy_to_bucket(stream, table.all(), from);
    Device::copy_from_bucket(stream, table.all(), static_cast<From const*>(from));
    wait(stream);
}

template <class T>
void run_all(cudaStream_t stream, T* memory, std::int64_t* integers, zero::ops::NormSum* norms) {
    run_pair(stream, memory, reinterpret_cast<float*>(memory) + 32);
    run_pair(stream, memory, reinterpret_cast<zero::bfloat16*>(memory) + 64);
    run_pair(stream, memory, reinterpret_cast<zero::float16*>(memory) + 64);
    T const* const peers[] = {memory, memory + 8};
    Device::sum_ranks(stream, memory + 16, peers, 2, 8);
    Device::sum_tree(stream, zero::ops::TreeSum<T>{memory + 16, {}}, peers, 2, 8); // compiled here
    std::int64_t const* const integer_peers[] = {integers, integers};
    Device::sum_integers(stream, integers, integer_peers, 2, 1);
    Device::min_integers(stream, integers, integer_peers, 2, 1);
    Device::SliceTable<zero::InspectSlice<T>> const inspected(
        stream, Device::default_memory(),
        zero::detail::List<zero::InspectSlice<T>>{{memory, 8, 0}});
    Device::inspect(stream, inspected.all(), &norms->exact);
    Device::SliceTable<zero::NormSlice<T>> const measured(
        stream, Device::default_memory(),
        zero::detail::List<zero::NormSlice<T>>{{{memory, 8, 0}, 0}});
    Device::add_to_norms(stream, measured.all(), zero::NormKind::infinity, norms);
    wait(stream);
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("skipped: no CUDA device");
        return 0;
    }
    zero::cuda::OwnedStream const stream;
    auto& memory = Device::default_memory();
    zero::Buffer<float> numbers(memory, 1024, zero::BufferKind::control);
    zero::Buffer<std::int64_t> integers(memory, 1, zero::BufferKind::control);
    zero::Buffer<zero::ops::NormSum> norms(memory, 1, zero::BufferKind::control);
    Device::fill(stream.get(), numbers.data(), 1024, 2.0F);
    Device::fill(stream.get(), integers.data(), 1, std::int64_t{3});
    Device::fill(stream.get(), reinterpret_cast<std::int64_t*>(norms.data()),
                 sizeof(zero::ops::NormSum) / sizeof(std::int64_t), std::int64_t{0});
    run_all(stream.get(), numbers.data(), integers.data(), norms.data());
    run_all(stream.get(), reinterpret_cast<zero::bfloat16*>(numbers.data()), integers.data(),
            norms.data());
    run_all(stream.get(), reinterpret_cast<zero::float16*>(numbers.data()), integers.data(),
            norms.data());
    return 0;
}
