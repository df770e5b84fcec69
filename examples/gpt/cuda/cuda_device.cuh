#pragma once

#include "../attention_shape.hpp"
#include "../text.hpp"
#include "check.cuh"
#include "kernels.cuh"
#include "memory.cuh"
#include "products.cuh"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpt {

/// @brief A text in device memory.
class CudaText {
public:
    CudaText(cudaStream_t stream, Text const& text)
        : _training(place(stream, text.training())), _validation(place(stream, text.validation())) {
        check_cuda(cudaStreamSynchronize(stream),
                   "cudaStreamSynchronize"); // the host's copy may be freed
    }
    std::span<std::uint8_t const> training() const noexcept {
        return {_training.data(), _training.size()};
    }
    std::span<std::uint8_t const> validation() const noexcept {
        return {_validation.data(), _validation.size()};
    }

private:
    static CudaBuffer<std::uint8_t> place(cudaStream_t stream,
                                          std::span<std::uint8_t const> bytes) {
        CudaBuffer<std::uint8_t> buffer(stream, bytes.size());
        check_cuda(cudaMemcpyAsync(buffer.data(), bytes.data(), bytes.size(),
                                   cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
        return buffer;
    }

    CudaBuffer<std::uint8_t> _training;
    CudaBuffer<std::uint8_t> _validation;
};

/// @brief `Batch` in device memory, cut from a text there, so a step uploads nothing.
class CudaBatch {
public:
    CudaBatch(cudaStream_t stream, std::size_t samples, std::size_t context)
        : _stream(stream), _context(context), _tokens(stream, samples * context),
          _targets(stream, samples * context) {}

    std::span<std::uint8_t const> tokens() const noexcept {
        return {_tokens.data(), _tokens.size()};
    }
    std::span<std::uint8_t const> targets() const noexcept {
        return {_targets.data(), _targets.size()};
    }

    void fill(std::span<std::uint8_t const> text, SamplePositions const& positions) {
        kernels::launch_elements(_stream, _tokens.size(), kernels::fill_batch, text.data(),
                                 positions, _context, _tokens.data(), _targets.data());
    }

private:
    cudaStream_t _stream;
    std::size_t _context;
    CudaBuffer<std::uint8_t> _tokens;
    CudaBuffer<std::uint8_t> _targets;
};

/// @brief `HostDevice` on a CUDA device. Everything is enqueued on one stream; only `loss` and
/// `on_host` wait.
class CudaDevice {
public:
    using Real = float;
    using Buffer = CudaBuffer<float>;
    using Matrix = CudaMatrix;
    using Batch = CudaBatch;
    using Text = CudaText;
    using Scale = float const*;

    struct NormCache {
        CudaMatrix normalised;
        CudaBuffer<float> inverse_deviation;
    };

    /// @param stream must outlive this object
    CudaDevice(cudaStream_t stream, std::size_t rows)
        : _stream(stream), _products(stream), _losses(stream, rows), _loss(stream, 1) {}

    /// @brief Returns the stream on which everything is enqueued.
    [[nodiscard]] cudaStream_t stream() const noexcept { return _stream; }

    Buffer buffer(std::size_t elements) const { return Buffer(_stream, elements); }
    Matrix matrix(std::size_t rows, std::size_t columns) const {
        return Matrix(_stream, rows, columns);
    }
    Batch batch(std::size_t samples, std::size_t context) const {
        return Batch(_stream, samples, context);
    }
    Text place(gpt::Text const& text) const { return Text(_stream, text); }
    template <class LossScale>
    static Scale scale_of(LossScale const& scale) noexcept {
        return scale.data();
    }

    /// @brief Copies values of the engine to the host; waits for earlier work.
    template <class T>
    std::vector<std::remove_const_t<T>> on_host(std::span<T> values) const {
        std::vector<std::remove_const_t<T>> copy(values.size());
        check_cuda(cudaMemcpyAsync(copy.data(), values.data(), values.size_bytes(),
                                   cudaMemcpyDeviceToHost, _stream),
                   "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(_stream), "cudaStreamSynchronize");
        return copy;
    }

    void clear(View<float> matrix) const { clear(matrix.data, matrix.rows * matrix.columns); }
    template <class Stored>
    void load(std::span<Stored const> from, float* to) const {
        kernels::launch_elements(_stream, from.size(), kernels::load<Stored>, to, from.data());
    }
    template <class Stored>
    void add_to(std::span<Stored> to, float const* from) const {
        kernels::launch_elements(_stream, to.size(), kernels::add_to<Stored>, to.data(), from);
    }

    void clear_loss() { clear(_loss.data(), 1); }
    [[nodiscard]] double loss() const { return on_host(std::span(_loss.data(), 1)).front(); }

    void embed(std::span<std::uint8_t const> tokens, float const* token, float const* position,
               std::size_t context, View<float> result) const {
        kernels::launch_elements(_stream, size_of(result), kernels::embed, tokens.data(), token,
                                 position, context, result.columns, result.data);
    }
    void embed_backward(std::span<std::uint8_t const> tokens, View<float const> d_result,
                        std::size_t vocabulary, std::size_t context, float* d_token,
                        float* d_position) const {
        kernels::launch(_stream, vocabulary, kernels::embed_backward_tokens, tokens.data(),
                        d_result.data, d_result.rows, d_result.columns, d_token);
        kernels::launch(_stream, context, kernels::embed_backward_positions, d_result.data,
                        d_result.rows, context, d_result.columns, d_position);
    }

    void product_nt(View<float const> left, View<float const> right, View<float> result) {
        _products.nt(left, right, result);
    }
    void product_nn(View<float const> left, View<float const> right, View<float> result) {
        _products.nn(left, right, result);
    }
    void product_tn(View<float const> left, View<float const> right, View<float> result) {
        _products.tn(left, right, result);
    }

    void add(View<float const> left, View<float const> right, View<float> result) const {
        kernels::launch_elements(_stream, size_of(result), kernels::add, left.data, right.data,
                                 result.data);
    }

    void norm_forward(View<float const> x, float const* weight, float const* bias, NormCache& cache,
                      View<float> result) const {
        kernels::launch(_stream, x.rows, kernels::norm_forward, x.data, weight, bias, x.columns,
                        cache.normalised.view().data, cache.inverse_deviation.data(), result.data);
    }
    void norm_backward(View<float const> d_result, float const* weight, NormCache const& cache,
                       View<float> d_x, float* d_weight, float* d_bias) const {
        View<float const> const normalised = cache.normalised;
        kernels::launch(_stream, d_x.rows, kernels::norm_backward, d_result.data, weight,
                        normalised.data, cache.inverse_deviation.data(), d_x.columns, d_x.data);
        sum_columns(d_result, normalised.data, d_weight);
        sum_columns(d_result, nullptr, d_bias);
    }

    void linear_forward(View<float const> x, float const* weight, float const* bias,
                        View<float> result) {
        _products.nn(x, {weight, x.columns, result.columns, result.columns}, result);
        kernels::launch_elements(_stream, size_of(result), kernels::add_bias, bias, result.columns,
                                 result.data);
    }
    void linear_backward(View<float const> d_result, View<float const> x, float const* weight,
                         View<float> d_x, float* d_weight, float* d_bias) {
        std::size_t const inputs = x.columns;
        std::size_t const outputs = d_result.columns;
        _products.nt(d_result, {weight, inputs, outputs, outputs}, d_x);
        _products.tn(x, d_result, {d_weight, inputs, outputs, outputs});
        sum_columns(d_result, nullptr, d_bias);
    }

    void gelu_forward(View<float const> x, View<float> result) const {
        kernels::launch_elements(_stream, size_of(result), kernels::gelu_forward, x.data,
                                 result.data);
    }
    void gelu_backward(View<float const> x, View<float> gradient) const {
        kernels::launch_elements(_stream, size_of(gradient), kernels::gelu_backward, x.data,
                                 gradient.data);
    }

    void forward(AttentionShape const& shape, View<float const> qkv, View<float> probabilities,
                 View<float> result) {
        for (std::size_t sample = 0; sample < shape.batch; ++sample) {
            auto const [query, key, value] = shape.parts(qkv, sample, 0);
            _products.nt(query, key, shape.scores(probabilities, sample, 0),
                         heads(shape, shape.head_width, shape.head_width, score_elements(shape)));
        }
        kernels::launch(_stream, shape.probability_rows(), kernels::attention_forward,
                        probabilities.data, shape.context, scale(shape));
        for (std::size_t sample = 0; sample < shape.batch; ++sample) {
            auto const [query, key, value] = shape.parts(qkv, sample, 0);
            _products.nn(shape.scores(View<float const>(probabilities), sample, 0), value,
                         shape.columns_of(result, sample, 0, 0),
                         heads(shape, score_elements(shape), shape.head_width, shape.head_width));
        }
    }

    void backward(AttentionShape const& shape, View<float const> qkv,
                  View<float const> probabilities, View<float const> d_result, View<float> d_scores,
                  View<float> d_qkv) {
        for (std::size_t sample = 0; sample < shape.batch; ++sample) {
            auto const [query, key, value] = shape.parts(qkv, sample, 0);
            auto const [d_query, d_key, d_value] = shape.parts(d_qkv, sample, 0);
            auto const d_out = shape.columns_of(d_result, sample, 0, 0);
            _products.tn(shape.scores(probabilities, sample, 0), d_out, d_value,
                         heads(shape, score_elements(shape), shape.head_width, shape.head_width));
            _products.nt(d_out, value, shape.scores(d_scores, sample, 0),
                         heads(shape, shape.head_width, shape.head_width, score_elements(shape)));
        }
        kernels::launch(_stream, shape.probability_rows(), kernels::attention_backward,
                        probabilities.data, d_scores.data, shape.context, scale(shape));
        for (std::size_t sample = 0; sample < shape.batch; ++sample) {
            auto const [query, key, value] = shape.parts(qkv, sample, 0);
            auto const [d_query, d_key, d_value] = shape.parts(d_qkv, sample, 0);
            View<float const> const scratch = shape.scores(d_scores, sample, 0);
            _products.nn(scratch, key, d_query,
                         heads(shape, score_elements(shape), shape.head_width, shape.head_width));
            _products.tn(scratch, query, d_key,
                         heads(shape, score_elements(shape), shape.head_width, shape.head_width));
        }
    }

    void cross_entropy(View<float> logits, std::span<std::uint8_t const> targets) {
        kernels::launch(_stream, logits.rows, kernels::cross_entropy, logits.data, targets.data(),
                        logits.columns, _losses.data());
        kernels::launch(_stream, 1, kernels::add_mean, _losses.data(), logits.rows, _loss.data());
    }
    void cross_entropy_backward(View<float> probabilities, std::span<std::uint8_t const> targets,
                                Scale scale) const {
        kernels::launch_elements(_stream, size_of(probabilities), kernels::cross_entropy_backward,
                                 targets.data(), probabilities.columns, scale, probabilities.data);
    }

private:
    static std::size_t size_of(View<float> matrix) noexcept { return matrix.rows * matrix.columns; }
    static std::size_t score_elements(AttentionShape const& shape) noexcept {
        return shape.context * shape.context;
    }
    static float scale(AttentionShape const& shape) noexcept {
        return 1.0F / std::sqrt(static_cast<float>(shape.head_width));
    }

    /// Multiplies all heads of a sample at once.
    static Repeated heads(AttentionShape const& shape, std::size_t left, std::size_t right,
                          std::size_t result) noexcept {
        return {shape.heads, left, right, result};
    }

    template <class T>
    void clear(T* data, std::size_t elements) const {
        check_cuda(cudaMemsetAsync(data, 0, elements * sizeof(T), _stream), "cudaMemsetAsync");
    }
    void sum_columns(View<float const> values, float const* factors, float* sums) const {
        std::size_t const blocks =
            (values.columns + kernels::columns_per_block - 1) / kernels::columns_per_block;
        kernels::launch(_stream, blocks, kernels::column_sums, values.data, factors, values.rows,
                        values.columns, sums);
    }

    cudaStream_t _stream;
    Products _products;
    CudaBuffer<float> _losses; // loss of each row of a batch
    CudaBuffer<double> _loss;  // sum of their means
};

} // namespace gpt
