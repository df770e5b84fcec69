#pragma once

#include "attention.hpp"
#include "elementary.hpp"
#include "gelu.hpp"
#include "matrix.hpp"
#include "storage.hpp"
#include "text.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gpt {

/// @brief A model's place of computation, here the host. A device holds memory, the layers between
/// parameters and loss, and the sum of the losses.
///
/// A row is one token of one sample. Functions overwrite gradients of weights (the model adds them
/// to those of the trainer). The comment of a function says how it treats gradients of activations.
template <class Number>
class HostDevice : public HostAttention<Number> {
public:
    using Real = Number;
    using Buffer = gpt::Buffer<Real>;
    using Matrix = gpt::Matrix<Real>;
    using Batch = gpt::Batch;
    using Text = gpt::Text const&;
    using Scale = Real; ///< type of the loss scale

    /// @brief The values that the forward pass of a layer norm saves for its backward pass.
    struct NormCache {
        Matrix normalised;
        Buffer inverse_deviation;
    };

    /// @name Memory
    /// @{

    static Buffer buffer(std::size_t elements) { return Buffer(elements); }
    static Matrix matrix(std::size_t rows, std::size_t columns) { return Matrix(rows, columns); }
    static Batch batch(std::size_t samples, std::size_t context) { return Batch(samples, context); }
    static Text place(gpt::Text const& text) noexcept { return text; }
    template <class LossScale>
    static Scale scale_of(LossScale const& scale) {
        return static_cast<float>(scale);
    }
    /// @brief Returns values of the engine that the host can read.
    template <class T>
    static std::span<T> on_host(std::span<T> values) noexcept {
        return values;
    }
    static void clear(View<Real> matrix) noexcept {
        std::fill_n(matrix.data, matrix.rows * matrix.columns, Real{0});
    }
    template <class Stored>
    static void load(std::span<Stored const> from, Real* to) noexcept {
        gpt::load(from, to);
    }
    template <class Stored>
    static void add_to(std::span<Stored> to, Real const* from) noexcept {
        gpt::add_to(to, from);
    }

    /// @}
    /// @name The sum of the mean losses of batches, in nats per token
    /// @{

    void clear_loss() noexcept { _loss = 0.0; }
    [[nodiscard]] double loss() const noexcept { return _loss; }

    /// @}

    /// @brief The stream becomes token[tokens] + position.
    static void embed(std::span<std::uint8_t const> tokens, Real const* token, Real const* position,
                      std::size_t context, View<Real> result) noexcept {
        for (std::size_t row = 0; row < result.rows; ++row) {
            Real const* const of_token = token + tokens[row] * result.columns;
            Real const* const of_position = position + row % context * result.columns;
            for (std::size_t column = 0; column < result.columns; ++column) {
                result.row(row)[column] = of_token[column] + of_position[column];
            }
        }
    }

    static void embed_backward(std::span<std::uint8_t const> tokens, Input<Real> d_result,
                               std::size_t vocabulary, std::size_t context, Real* d_token,
                               Real* d_position) noexcept {
        std::fill_n(d_token, vocabulary * d_result.columns, Real{0});
        std::fill_n(d_position, context * d_result.columns, Real{0});
        for (std::size_t row = 0; row < d_result.rows; ++row) {
            Real const* const d_stream = d_result.row(row);
            Real* const of_token = d_token + tokens[row] * d_result.columns;
            Real* const of_position = d_position + row % context * d_result.columns;
            for (std::size_t column = 0; column < d_result.columns; ++column) {
                of_token[column] += d_stream[column];
                of_position[column] += d_stream[column];
            }
        }
    }

    /// @brief result = left * transpose(right), left * right, transpose(left) * right: for the
    /// head, which shares its weights with the embedding.
    static void product_nt(Input<Real> left, Input<Real> right, View<Real> result) {
        multiply_nt(left, right, result);
    }
    static void product_nn(Input<Real> left, Input<Real> right, View<Real> result) {
        multiply_nn(left, right, result);
    }
    static void product_tn(Input<Real> left, Input<Real> right, View<Real> result) {
        multiply_tn(left, right, result);
    }

    /// @brief result = left + right
    static void add(Input<Real> left, Input<Real> right, View<Real> result) noexcept {
        for (std::size_t row = 0; row < result.rows; ++row) {
            for (std::size_t column = 0; column < result.columns; ++column) {
                result.row(row)[column] = left.row(row)[column] + right.row(row)[column];
            }
        }
    }

    /// @brief result = (x - mean) / sqrt(variance + 1e-5) * weight + bias, a row at a time.
    static void norm_forward(Input<Real> x, Real const* weight, Real const* bias, NormCache& cache,
                             View<Real> result) noexcept {
        Real const inverse_width = Real{1} / static_cast<Real>(x.columns);
        for (std::size_t row = 0; row < x.rows; ++row) {
            Real const* const in = x.row(row);
            Real* const normalised = cache.normalised.row(row);
            Real* const out = result.row(row);
            Real const mean =
                inverse_width * sum_of<Real>(x.columns, [=](std::size_t i) { return in[i]; });
            Real const variance = inverse_width * sum_of<Real>(x.columns, [=](std::size_t i) {
                                      return (in[i] - mean) * (in[i] - mean);
                                  });
            Real const inverse_deviation = Real{1} / std::sqrt(variance + static_cast<Real>(1e-5));
            cache.inverse_deviation.data()[row] = inverse_deviation;
            for (std::size_t column = 0; column < x.columns; ++column) {
                normalised[column] = (in[column] - mean) * inverse_deviation;
                out[column] = normalised[column] * weight[column] + bias[column];
            }
        }
    }

    /// @brief Adds the gradient through the norm to `d_x`, which already holds that of the residual
    /// path.
    static void norm_backward(Input<Real> d_result, Real const* weight, NormCache const& cache,
                              View<Real> d_x, Real* d_weight, Real* d_bias) noexcept {
        View<Real const> const all_normalised = cache.normalised;
        Real const inverse_width = Real{1} / static_cast<Real>(d_x.columns);
        std::fill_n(d_weight, d_x.columns, Real{0});
        std::fill_n(d_bias, d_x.columns, Real{0});
        for (std::size_t row = 0; row < d_x.rows; ++row) {
            Real const* const normalised = all_normalised.row(row);
            Real const* const d_out = d_result.row(row);
            Real* const d_in = d_x.row(row);
            Real const mean = inverse_width * sum_of<Real>(d_x.columns, [=](std::size_t i) {
                                  return d_out[i] * weight[i];
                              });
            Real const slope = inverse_width * sum_of<Real>(d_x.columns, [=](std::size_t i) {
                                   return d_out[i] * weight[i] * normalised[i];
                               });
            Real const inverse_deviation = cache.inverse_deviation.data()[row];
            for (std::size_t column = 0; column < d_x.columns; ++column) {
                d_weight[column] += d_out[column] * normalised[column];
                d_bias[column] += d_out[column];
                d_in[column] += (d_out[column] * weight[column] - mean - normalised[column] * slope)
                                * inverse_deviation;
            }
        }
    }

    /// @brief result = x weight + bias, with `weight` of [inputs x outputs]
    static void linear_forward(Input<Real> x, Real const* weight, Real const* bias,
                               View<Real> result) {
        multiply_nn(x, {weight, x.columns, result.columns, result.columns}, result);
        for (std::size_t row = 0; row < result.rows; ++row) {
            Real* const out = result.row(row);
            for (std::size_t column = 0; column < result.columns; ++column) {
                out[column] += bias[column];
            }
        }
    }

    /// @brief Overwrites all three gradients.
    static void linear_backward(Input<Real> d_result, Input<Real> x, Real const* weight,
                                View<Real> d_x, Real* d_weight, Real* d_bias) {
        std::size_t const inputs = x.columns;
        std::size_t const outputs = d_result.columns;
        multiply_nt(d_result, {weight, inputs, outputs, outputs}, d_x);
        multiply_tn(x, d_result, View<Real>{d_weight, inputs, outputs, outputs});
        std::fill_n(d_bias, outputs, Real{0});
        for (std::size_t row = 0; row < d_result.rows; ++row) {
            Real const* const d_out = d_result.row(row);
            for (std::size_t column = 0; column < outputs; ++column) {
                d_bias[column] += d_out[column];
            }
        }
    }

    static void gelu_forward(Input<Real> x, View<Real> result) noexcept {
        for (std::size_t row = 0; row < x.rows; ++row) {
            transform(result.row(row), x.row(row), x.columns, [](auto, auto in) {
                return gelu<Real>(in, [](auto value) { return exponential(value); });
            });
        }
    }

    /// @brief Multiplies the gradient of the result by the derivative at `x`, in place.
    static void gelu_backward(Input<Real> x, View<Real> gradient) noexcept {
        for (std::size_t row = 0; row < x.rows; ++row) {
            transform(gradient.row(row), x.row(row), x.columns, [](auto d_out, auto in) {
                return d_out
                       * gelu_derivative<Real>(in, [](auto value) { return exponential(value); });
            });
        }
    }

    /// @brief Turns every row of logits into probabilities and adds the mean of -log(probability of
    /// the target) to the loss.
    void cross_entropy(View<Real> logits, std::span<std::uint8_t const> targets) noexcept {
        double loss = 0.0;
        for (std::size_t row = 0; row < logits.rows; ++row) {
            Real* const values = logits.row(row);
            double const target = static_cast<double>(values[targets[row]]);
            loss += softmax(values, logits.columns) - target;
        }
        _loss += loss / static_cast<double>(logits.rows);
    }

    /// @brief Turns probabilities into the gradient of `scale` times the mean loss with respect to
    /// the logits, in place.
    static void cross_entropy_backward(View<Real> probabilities,
                                       std::span<std::uint8_t const> targets, Real scale) noexcept {
        Real const factor = scale / static_cast<Real>(probabilities.rows);
        for (std::size_t row = 0; row < probabilities.rows; ++row) {
            Real* const values = probabilities.row(row);
            values[targets[row]] -= Real{1};
            for (std::size_t column = 0; column < probabilities.columns; ++column) {
                values[column] *= factor;
            }
        }
    }

private:
    double _loss = 0.0;
};

} // namespace gpt
