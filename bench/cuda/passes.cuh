#pragma once

#include "device_array.cuh"
#include "models.hpp"

#include <zero/cuda/backend.cuh>
#include <zero/ops/adamw.hpp>
#include <zero/ops/block_codecs.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/muon.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

// Passes of a step, each over all tensors of a model in one launch. Inputs are random, and outputs
// hold NaN before the first launch.
namespace zero::bench {

/// Copies consecutive tensors to a bucket, or back.
template <class T, class InBucket, bool to_bucket>
class FlattenPass {
public:
    /// @param begin elements before the tensors; 1: none is aligned to 16 bytes
    explicit FlattenPass(std::vector<std::size_t> const& sizes, std::size_t begin = 0)
        : _tensors(begin + elements_of(sizes)), _bucket(elements_of(sizes)),
          _moved_bytes(elements_of(sizes) * (sizeof(T) + sizeof(InBucket))),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes, begin)) {
        if constexpr (to_bucket) {
            fill_normal(_tensors.data() + begin, elements_of(sizes), gradient_deviation);
            _input = {_tensors.data() + begin, elements_of(sizes) * sizeof(T)};
        } else {
            fill_normal(_bucket.data(), elements_of(sizes), gradient_deviation);
            _input = {_bucket.data(), elements_of(sizes) * sizeof(InBucket)};
        }
    }

    void enqueue(cudaStream_t stream) const {
        if constexpr (to_bucket) {
            cuda::Backend::copy_to_bucket(stream, _table.all(), _bucket.data());
        } else {
            cuda::Backend::copy_from_bucket(stream, _table.all(),
                                            static_cast<InBucket const*>(_bucket.data()));
        }
    }

    [[nodiscard]] T* tensors() const { return _tensors.data(); }
    [[nodiscard]] InBucket* bucket() const { return _bucket.data(); }
    [[nodiscard]] std::vector<TimedInput> inputs() const { return {_input}; }
    [[nodiscard]] std::size_t moved_bytes() const { return _moved_bytes; }

private:
    [[nodiscard]] detail::List<CopySlice<T>> slices(std::vector<std::size_t> const& sizes,
                                                    std::size_t begin) const {
        detail::List<CopySlice<T>> result;
        std::size_t at = 0;
        for (std::size_t const size : sizes) {
            result.push_back({_tensors.data() + begin + at, at, size});
            at += size;
        }
        return result;
    }

    DeviceArray<T> _tensors;
    DeviceArray<InBucket> _bucket;
    TimedInput _input{};
    std::size_t _moved_bytes;
    cuda::Backend::SliceTable<CopySlice<T>> _table;
};

/// Elements of a bucket in which every tensor begins at a multiple of 64.
inline std::size_t padded(std::vector<std::size_t> const& sizes) {
    std::size_t sum = 0;
    for (std::size_t const size : sizes) {
        sum += (size + 63) / 64 * 64;
    }
    return sum;
}

/// Encodes the weights of all tensors, or decodes them.
template <class C, class T, bool encodes>
class CodesPass {
public:
    explicit CodesPass(std::vector<std::size_t> const& sizes)
        : _weights(padded(sizes)), _codes(padded(sizes) / 64 * C::bytes_per_block),
          _decoded(encodes ? 1 : padded(sizes)), _elements(elements_of(sizes)),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes)) {
        fill_normal(_weights.data(), padded(sizes), parameter_deviation);
        if constexpr (!encodes) {
            cuda::Backend::encode<C>(cudaStreamPerThread, _table.all(), _codes.data());
            cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread),
                                "cudaStreamSynchronize");
        }
    }

    void enqueue(cudaStream_t stream) const {
        if constexpr (encodes) {
            cuda::Backend::encode<C>(stream, _table.all(), _codes.data());
        } else {
            cuda::Backend::decode<C>(stream, _table.all(),
                                     static_cast<std::uint8_t const*>(_codes.data()),
                                     _decoded.data());
        }
    }

    [[nodiscard]] std::vector<TimedInput> inputs() const {
        return {{_weights.data(), _elements * sizeof(T)}};
    }
    [[nodiscard]] std::size_t moved_bytes() const {
        return _elements * sizeof(T) + _elements / 64 * C::bytes_per_block;
    }

private:
    [[nodiscard]] detail::List<CopySlice<T>> slices(std::vector<std::size_t> const& sizes) const {
        detail::List<CopySlice<T>> result;
        std::size_t at = 0;
        for (std::size_t const size : sizes) {
            result.push_back({_weights.data() + at, at, size});
            at += (size + 63) / 64 * 64;
        }
        return result;
    }

    DeviceArray<T> _weights;
    DeviceArray<std::uint8_t> _codes;
    DeviceArray<T> _decoded;
    std::size_t _elements;
    cuda::Backend::SliceTable<CopySlice<T>> _table;
};

/// Encodes gradients and keeps the errors, or decodes those of four ranks and adds them.
template <class C, bool encodes>
class GradientCodesPass {
public:
    explicit GradientCodesPass(std::vector<std::size_t> const& sizes)
        : _gradients(padded(sizes)), _errors(padded(sizes)), _sums(padded(sizes)),
          _pieces{encodes ? 1 : 4, padded(sizes) / 64 * C::bytes_per_block},
          _codes(_pieces.ranks * _pieces.bytes), _elements(elements_of(sizes)),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes)) {
        fill_normal(_gradients.data(), padded(sizes), gradient_deviation);
        fill_normal(_errors.data(), padded(sizes), gradient_deviation / 8);
        for (std::size_t rank = 0; rank < _pieces.ranks; ++rank) {
            cuda::Backend::encode<C>(cudaStreamPerThread, _table.all(), gradients(),
                                     _codes.data() + rank * _pieces.bytes);
        }
        cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
    }

    void enqueue(cudaStream_t stream) const {
        if constexpr (encodes) {
            cuda::Backend::encode_with_feedback<C, float>(
                stream, _table.all(), gradients(), _codes.data(),
                CodedErrors<float>{_errors.data(), nullptr, 0.8F});
        } else {
            cuda::Backend::decode_sum<C>(stream, _table.all(),
                                         static_cast<std::uint8_t const*>(_codes.data()), _pieces,
                                         _sums.data(), false);
        }
    }

    [[nodiscard]] float* gradients() const { return _gradients.data(); }
    [[nodiscard]] float* errors() const { return _errors.data(); }
    [[nodiscard]] float* sums() const { return _sums.data(); }
    [[nodiscard]] std::vector<TimedInput> inputs() const {
        if constexpr (encodes) {
            return {{_gradients.data(), _elements * sizeof(float)},
                    {_errors.data(), _elements * sizeof(float)}};
        } else {
            return {{_codes.data(), _elements / 64 * C::bytes_per_block}};
        }
    }
    [[nodiscard]] std::size_t moved_bytes() const { // gradients, errors twice, or sums; and codes
        return (encodes ? 3 : 1) * _elements * sizeof(float)
               + _pieces.ranks * (_elements / 64 * C::bytes_per_block);
    }

private:
    [[nodiscard]] static detail::List<CodedSlice> slices(std::vector<std::size_t> const& sizes) {
        detail::List<CodedSlice> result;
        std::size_t at = 0;
        for (std::size_t const size : sizes) {
            result.push_back({at, at / 64, size});
            at += (size + 63) / 64 * 64;
        }
        return result;
    }

    DeviceArray<float> _gradients;
    DeviceArray<float> _errors;
    DeviceArray<float> _sums;
    CodedPieces _pieces;
    DeviceArray<std::uint8_t> _codes;
    std::size_t _elements;
    cuda::Backend::SliceTable<CodedSlice> _table;
};

/// Adds the gradients of some ranks: in their order to the same type, or in a tree. It reads a
/// number of each rank and writes one, per element.
template <class T, int ranks = 2, class Sum = T, bool in_tree = false>
class SumPass {
public:
    explicit SumPass(std::vector<std::size_t> const& sizes)
        : _elements(elements_of(sizes)), _gradients(ranks * _elements), _sums(_elements) {
        fill_normal(_gradients.data(), ranks * _elements, gradient_deviation);
        for (int rank = 0; rank < ranks; ++rank) {
            _peers[rank] = _gradients.data() + static_cast<std::size_t>(rank) * _elements;
        }
    }

    void enqueue(cudaStream_t stream) const {
        if constexpr (in_tree) {
            ops::TreeSum<Sum> const sum{_sums.data(), {}};
            cuda::Backend::sum_tree(stream, sum, _peers, ranks, _elements);
        } else {
            cuda::Backend::sum_ranks(stream, _sums.data(), _peers, ranks, _elements);
        }
    }

    [[nodiscard]] T* gradients() const { return _gradients.data(); }
    [[nodiscard]] Sum* sums() const { return _sums.data(); }
    [[nodiscard]] std::vector<TimedInput> inputs() const {
        return {{_gradients.data(), ranks * _elements * sizeof(T)}};
    }
    [[nodiscard]] std::size_t moved_bytes() const {
        return (ranks * sizeof(T) + sizeof(Sum)) * _elements;
    }

private:
    std::size_t _elements;
    DeviceArray<T> _gradients;
    DeviceArray<Sum> _sums;
    T const* _peers[ranks];
};

/// Computes the sum of squares and the count of non-finite elements.
template <class A>
class NormPass {
public:
    /// @param begin elements before the gradients; 1: none is aligned to 16 bytes
    explicit NormPass(std::vector<std::size_t> const& sizes, std::size_t begin = 0)
        : _gradients(begin + elements_of(sizes)), _moved_bytes(elements_of(sizes) * sizeof(A)),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes, begin)) {
        fill_normal(_gradients.data() + begin, elements_of(sizes), gradient_deviation);
        _input = {_gradients.data() + begin, _moved_bytes};
    }

    void enqueue(cudaStream_t stream) const {
        cuda::Backend::inspect(stream, _table.all(), _result.data());
    }

    [[nodiscard]] A* gradients() const { return _gradients.data(); }
    [[nodiscard]] ops::Inspection* result() const { return _result.data(); }
    [[nodiscard]] std::vector<TimedInput> inputs() const { return {_input}; }
    [[nodiscard]] std::size_t moved_bytes() const { return _moved_bytes; }

private:
    [[nodiscard]] detail::List<InspectSlice<A>> slices(std::vector<std::size_t> const& sizes,
                                                       std::size_t begin) const {
        detail::List<InspectSlice<A>> result;
        std::size_t at = 0;
        for (std::size_t const size : sizes) {
            result.push_back({_gradients.data() + begin + at, size, static_cast<std::int64_t>(at)});
            at += size;
        }
        return result;
    }

    DeviceArray<A> _gradients;
    DeviceArray<ops::Inspection> _result{std::vector<ops::Inspection>(1)};
    TimedInput _input{};
    std::size_t _moved_bytes;
    cuda::Backend::SliceTable<InspectSlice<A>> _table;
};

/// Unscales, clips, runs the optimizer and casts. The moments are those of a training whose
/// gradients stay the same: the gradient and its square. AdamW moves 30 bytes per element: it reads
/// the gradient, reads and writes the master weight and two moments, and writes the bfloat16
/// parameter.
template <class Optimizer = AdamW>
class UpdatePass {
public:
    struct Group { // nvcc requires types of kernels to be public
        typename Optimizer::Hyper hyper;
    };
    using Slice = UpdateSlice<float, MasterPointers<float, bfloat16>, StatePointers<2, float>>;

    /// @param begin elements before the gradients; 1: none of them is aligned to 16 bytes
    explicit UpdatePass(std::vector<std::size_t> const& sizes, std::size_t begin = 0)
        : _gradients(begin + elements_of(sizes)), _masters(elements_of(sizes)),
          _first(elements_of(sizes)), _second(elements_of(sizes)), _parameters(elements_of(sizes)),
          _scratch(scratch_floats(sizes)), _moved_bytes(bytes_of_element * elements_of(sizes)),
          _table(cudaStreamPerThread, cuda::Backend::default_memory(), slices(sizes, begin)) {
        std::size_t const elements = elements_of(sizes);
        fill_normal(_gradients.data() + begin, elements, gradient_deviation);
        fill_normal(_masters.data(), elements, parameter_deviation);
        fill_normal(_first.data(), elements, gradient_deviation);
        fill_squares(_second.data(), _first.data(), elements);
        _inputs = {{_gradients.data() + begin, elements * sizeof(float)},
                   {_masters.data(), elements * sizeof(float)},
                   {_first.data(), elements * sizeof(float)},
                   {_second.data(), elements * sizeof(float)}};
    }

    void enqueue(cudaStream_t stream) const {
        cuda::Backend::update<Optimizer>(stream, _table.all(), _groups.data(), _decisions.data());
    }

    [[nodiscard]] float* gradients() const { return _gradients.data(); }
    [[nodiscard]] float* masters() const { return _masters.data(); }
    [[nodiscard]] float* first_moments() const { return _first.data(); }
    [[nodiscard]] float* second_moments() const { return _second.data(); }
    [[nodiscard]] bfloat16* parameters() const { return _parameters.data(); }
    [[nodiscard]] std::vector<TimedInput> const& inputs() const { return _inputs; }
    [[nodiscard]] std::size_t moved_bytes() const { return _moved_bytes; }

private:
    /// Reads and writes of one element: norms of whole parameters take passes of their own. The
    /// products of `Muon` are not counted.
    static constexpr std::size_t bytes_of_element = std::is_same_v<Optimizer, Lamb> ? 58 : 30;

    /// The matrices of the model, among tensors that are no embeddings.
    static std::size_t rows_of(std::size_t size) {
        constexpr std::size_t rows = 768;
        return size % rows == 0 && size > rows && size <= 4 * rows * rows ? rows : 0;
    }

    static std::size_t scratch_floats([[maybe_unused]] std::vector<std::size_t> const& sizes) {
        std::size_t most = 0;
        if constexpr (Optimizer::whole_tensor) {
            for (std::size_t const size : sizes) {
                std::size_t const rows = rows_of(size);
                most = std::max(
                    most, Optimizer::scratch_floats(rows, rows == 0 ? size : size / rows)
                              + sizes.size() * cuda::Backend::norm_floats<Optimizer>(size, rows));
            }
        }
        return most;
    }

    [[nodiscard]] detail::List<Slice> slices(std::vector<std::size_t> const& sizes,
                                             std::size_t begin) const {
        detail::List<Slice> result;
        std::size_t at = 0;
        for (std::size_t const size : sizes) {
            Slice slice;
            slice.gradient = _gradients.data() + begin + at;
            slice.master = _masters.data() + at;
            slice.parameter = _parameters.data() + at;
            slice.states = {_first.data() + at, _second.data() + at};
            slice.elements = size;
            slice.rows = Optimizer::whole_tensor ? rows_of(size) : 0;
            slice.scratch = _scratch.data();
            result.push_back(slice);
            at += size;
        }
        return result;
    }

    DeviceArray<float> _gradients;
    DeviceArray<float> _masters;
    DeviceArray<float> _first;
    DeviceArray<float> _second;
    DeviceArray<bfloat16> _parameters;
    DeviceArray<float> _scratch;
    DeviceArray<Group> _groups{std::vector<Group>{{Optimizer::hyper({}, 0.001, 1)}}};
    DeviceArray<UpdateDecision> _decisions{std::vector<UpdateDecision>(1)};
    std::vector<TimedInput> _inputs;
    std::size_t _moved_bytes;
    cuda::Backend::SliceTable<Slice> _table;
};

} // namespace zero::bench
