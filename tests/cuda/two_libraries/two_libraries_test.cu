#include "cuda/device.hpp"

#include <zero/backend/slices.hpp>
#include <zero/cuda/allocator_memory.hpp>
#include <zero/cuda/owned_stream.hpp>
#include <zero/cuda/slice_table.hpp>
#include <zero/ops/norm.hpp>

#include <vector>

extern "C" void const* first_kernel();
extern "C" void const* second_kernel();
extern "C" void first_scale(float* out, float const* in, std::size_t elements, float factor,
                            cudaStream_t stream);
extern "C" void second_scale(float* out, float const* in, std::size_t elements, float factor,
                             cudaStream_t stream);

extern "C" void first_reduce(zero::cuda::TableRange<zero::CopySlice<float>>,
                             zero::cuda::TableRange<zero::NormSlice<float>>, float* bucket,
                             zero::ops::NormSum* norm, cudaStream_t stream);
extern "C" void second_reduce(zero::cuda::TableRange<zero::CopySlice<float>>,
                              zero::cuda::TableRange<zero::NormSlice<float>>, float* bucket,
                              zero::ops::NormSum* norm, cudaStream_t stream);

using namespace zero;
using namespace zero::test;

TEST_CASE("Two libraries that were compiled for different architectures each have their own kernel",
          "[cuda]") {
    CHECK(first_kernel() != nullptr);
    CHECK(first_kernel() != second_kernel());
}

TEST_CASE("Two libraries in one program each launch their own kernel", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    std::vector<float> const values(10000, 3.0F);
    DeviceArray<float> const in(values);
    DeviceArray<float> const first(values.size());
    DeviceArray<float> const second(values.size());
    first_scale(first.data(), in.data(), values.size(), 2.0F, stream.get());
    second_scale(second.data(), in.data(), values.size(), 0.5F, stream.get());
    CHECK(on_host(first) == std::vector<float>(values.size(), 6.0F));
    CHECK(on_host(second) == std::vector<float>(values.size(), 1.5F));
}

TEST_CASE("Two libraries in one program, of which one wraps CUB, each run on their own CUB",
          "[cuda]") {
    CHECK(&first_reduce != &second_reduce);
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    std::vector<float> const values{3.0F, 4.0F};
    DeviceArray<float> const tensor(values);
    cuda::SliceTable<CopySlice<float>> const tensors(stream.get(), cuda::default_memory(),
                                                     {{tensor.data(), 0, 2}});
    cuda::SliceTable<NormSlice<float>> const slices(stream.get(), cuda::default_memory(),
                                                    {{{tensor.data(), 2, 0}, 0}});
    for (auto* const reduce : {&first_reduce, &second_reduce}) {
        DeviceArray<float> const bucket(2);
        DeviceArray<ops::NormSum> const norm(std::vector<ops::NormSum>(1));
        reduce(tensors.all(), slices.all(), bucket.data(), norm.data(), stream.get());
        CHECK(on_host(bucket) == values);
        CHECK(on_host(norm)[0].value(NormKind::l2, 1.0) == 5.0);
    }
}
