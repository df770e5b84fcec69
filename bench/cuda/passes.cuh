#pragma once

#include "device_array.cuh"

#include <zero/cuda/backend.cuh>
#include <zero/ops/adamw.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// Passes of a step, each over all tensors of a model in one launch.
namespace zero::bench {

/// Sizes of the tensors of GPT-2 with 1.5 billion parameters, in order of registration.
inline std::vector<std::size_t> gpt2_xl() {
    constexpr std::size_t width = 1600;
    std::vector<std::size_t> sizes{50257 * width, 1024 * width};
    for (int layer = 0; layer < 48; ++layer) {
        for (std::size_t const elements :
             {width, width, 3 * width * width, 3 * width, width * width, width, width, width,
              4 * width * width, 4 * width, 4 * width * width, width}) {
            sizes.push_back(elements);
        }
    }
    sizes.insert(sizes.end(), {width, width});
    return sizes;
}

inline std::size_t elements_of(std::vector<std::size_t> const& sizes) {
    std::size_t sum = 0;
    for (std::size_t const size : sizes) {
        sum += size;
    }
    return sum;
}

/// Computes the sum of squares and the count of non-finite elements.
template <class A>
class NormPass {
public:
    explicit NormPass(std::vector<std::size_t> const& sizes)
        : _gradients(elements_of(sizes)), _moved_bytes(elements_of(sizes) * sizeof(A)),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes)) {
        cuda::Backend::fill(cudaStreamPerThread, _gradients.data(), elements_of(sizes),
                            from_float<A>(0.01F));
        cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
    }

    void enqueue(cudaStream_t stream) const {
        cuda::Backend::inspect(stream, _table.all(), _result.data());
    }

    [[nodiscard]] A* gradients() const { return _gradients.data(); }
    [[nodiscard]] std::size_t moved_bytes() const { return _moved_bytes; }

private:
    [[nodiscard]] detail::List<InspectSlice<A>>
    slices(std::vector<std::size_t> const& sizes) const {
        detail::List<InspectSlice<A>> result;
        std::size_t begin = 0;
        for (std::size_t const size : sizes) {
            result.push_back({_gradients.data() + begin, size, static_cast<std::int64_t>(begin)});
            begin += size;
        }
        return result;
    }

    DeviceArray<A> _gradients;
    DeviceArray<ops::Inspection> _result{1};
    std::size_t _moved_bytes;
    cuda::Backend::SliceTable<InspectSlice<A>> _table;
};

/// Unscales, clips, runs AdamW and casts: 30 bytes per element, for the gradient, the master weight
/// and two moments twice, and the bfloat16 parameter.
class UpdatePass {
public:
    struct Group { // nvcc requires types of kernels to be public
        AdamW::Hyper hyper;
    };
    using Slice = UpdateSlice<float, MasterPointers<float, bfloat16>, StatePointers<2, float>>;

    explicit UpdatePass(std::vector<std::size_t> const& sizes)
        : _gradients(elements_of(sizes)), _masters(elements_of(sizes)), _first(elements_of(sizes)),
          _second(elements_of(sizes)), _parameters(elements_of(sizes)),
          _moved_bytes(30 * elements_of(sizes)),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes)) {
        cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
    }

    void enqueue(cudaStream_t stream) const {
        cuda::Backend::update<AdamW>(stream, _table.all(), _groups.data(), _decisions.data());
    }

    [[nodiscard]] float* gradients() const { return _gradients.data(); }
    [[nodiscard]] std::size_t moved_bytes() const { return _moved_bytes; }

private:
    [[nodiscard]] detail::List<Slice> slices(std::vector<std::size_t> const& sizes) const {
        detail::List<Slice> result;
        std::size_t begin = 0;
        for (std::size_t const size : sizes) {
            Slice slice;
            slice.gradient = _gradients.data() + begin;
            slice.master = _masters.data() + begin;
            slice.parameter = _parameters.data() + begin;
            slice.states = {_first.data() + begin, _second.data() + begin};
            slice.elements = size;
            result.push_back(slice);
            begin += size;
        }
        return result;
    }

    DeviceArray<float> _gradients;
    DeviceArray<float> _masters;
    DeviceArray<float> _first;
    DeviceArray<float> _second;
    DeviceArray<bfloat16> _parameters;
    DeviceArray<Group> _groups{std::vector<Group>{{AdamW::hyper({}, 0.001, 1)}}};
    DeviceArray<UpdateDecision> _decisions{std::vector<UpdateDecision>(1)};
    std::size_t _moved_bytes;
    cuda::Backend::SliceTable<Slice> _table;
};

} // namespace zero::bench
