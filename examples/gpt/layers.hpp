#pragma once

#include "elementary.hpp"
#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gpt {

// The layers between the attention and the loss. A row is one token of one sample. Gradients with respect to weights are
// overwritten (the caller adds them to what it keeps); each function says what it does to gradients of activations.

/// @brief result = left + right
template <class Real>
void add(Input<Real> left, Input<Real> right, View<Real> result) noexcept {
    for (std::size_t row = 0; row < result.rows; ++row) {
        for (std::size_t column = 0; column < result.columns; ++column) {
            result.row(row)[column] = left.row(row)[column] + right.row(row)[column];
        }
    }
}

/// @brief What the backward pass of a layer norm needs of its forward pass.
template <class Real>
struct NormCache {
    NormCache() = default;
    NormCache(std::size_t rows, std::size_t width) : normalised(rows, width), inverse_deviation(rows) {}
    Matrix<Real> normalised;
    Buffer<Real> inverse_deviation;
};

/// @brief result = (x - mean) / sqrt(variance + 1e-5) * weight + bias, a row at a time.
template <class Real>
void norm_forward(Input<Real> x, Real const* weight, Real const* bias, NormCache<Real>& cache, View<Real> result) noexcept {
    Real const inverse_width = Real{1} / static_cast<Real>(x.columns);
    for (std::size_t row = 0; row < x.rows; ++row) {
        Real const* const in = x.row(row);
        Real* const normalised = cache.normalised.row(row);
        Real* const out = result.row(row);
        Real const mean = inverse_width * sum_of<Real>(x.columns, [=](std::size_t i) { return in[i]; });
        Real const variance =
            inverse_width * sum_of<Real>(x.columns, [=](std::size_t i) { return (in[i] - mean) * (in[i] - mean); });
        Real const inverse_deviation = Real{1} / std::sqrt(variance + static_cast<Real>(1e-5));
        cache.inverse_deviation.data()[row] = inverse_deviation;
        for (std::size_t column = 0; column < x.columns; ++column) {
            normalised[column] = (in[column] - mean) * inverse_deviation;
            out[column] = normalised[column] * weight[column] + bias[column];
        }
    }
}

/// @brief Adds the gradient that passes through the norm to `d_x`, which already holds the one of the residual path.
template <class Real>
void norm_backward(Input<Real> d_result, Real const* weight, NormCache<Real> const& cache, View<Real> d_x, Real* d_weight,
                   Real* d_bias) noexcept {
    View<Real const> const all_normalised = cache.normalised;
    Real const inverse_width = Real{1} / static_cast<Real>(d_x.columns);
    std::fill_n(d_weight, d_x.columns, Real{0});
    std::fill_n(d_bias, d_x.columns, Real{0});
    for (std::size_t row = 0; row < d_x.rows; ++row) {
        Real const* const normalised = all_normalised.row(row);
        Real const* const d_out = d_result.row(row);
        Real* const d_in = d_x.row(row);
        Real const mean = inverse_width * sum_of<Real>(d_x.columns, [=](std::size_t i) { return d_out[i] * weight[i]; });
        Real const slope =
            inverse_width * sum_of<Real>(d_x.columns, [=](std::size_t i) { return d_out[i] * weight[i] * normalised[i]; });
        Real const inverse_deviation = cache.inverse_deviation.data()[row];
        for (std::size_t column = 0; column < d_x.columns; ++column) {
            d_weight[column] += d_out[column] * normalised[column];
            d_bias[column] += d_out[column];
            d_in[column] += (d_out[column] * weight[column] - mean - normalised[column] * slope) * inverse_deviation;
        }
    }
}

/// @brief result = x weight + bias, with `weight` of [inputs x outputs]
template <class Real>
void linear_forward(Input<Real> x, Real const* weight, Real const* bias, View<Real> result) {
    multiply_nn(x, {weight, x.columns, result.columns, result.columns}, result);
    for (std::size_t row = 0; row < result.rows; ++row) {
        Real* const out = result.row(row);
        for (std::size_t column = 0; column < result.columns; ++column) {
            out[column] += bias[column];
        }
    }
}

/// @brief Overwrites all three gradients.
template <class Real>
void linear_backward(Input<Real> d_result, Input<Real> x, Real const* weight, View<Real> d_x, Real* d_weight, Real* d_bias) {
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

template <class Real>
void gelu_forward(Input<Real> x, View<Real> result) noexcept {
    for (std::size_t row = 0; row < x.rows; ++row) {
        transform(result.row(row), x.row(row), x.columns, [](auto, auto in) { return gelu<Real>(in); });
    }
}

/// @brief Multiplies the gradient of the result by the derivative at `x`, in place.
template <class Real>
void gelu_backward(Input<Real> x, View<Real> gradient) noexcept {
    for (std::size_t row = 0; row < x.rows; ++row) {
        transform(gradient.row(row), x.row(row), x.columns, [](auto d_out, auto in) { return d_out * gelu_derivative<Real>(in); });
    }
}

/// @brief Turns every row of logits into probabilities and returns the mean of -log(probability of the target) in nats.
template <class Real>
double cross_entropy(View<Real> logits, std::span<std::uint8_t const> targets) noexcept {
    double loss = 0.0;
    for (std::size_t row = 0; row < logits.rows; ++row) {
        Real* const values = logits.row(row);
        double const target = static_cast<double>(values[targets[row]]);
        loss += softmax(values, logits.columns) - target;
    }
    return loss / static_cast<double>(logits.rows);
}

/// @brief Turns probabilities into the gradient of `scale` times the mean loss with respect to the logits, in place.
template <class Real>
void cross_entropy_backward(View<Real> probabilities, std::span<std::uint8_t const> targets, Real scale) noexcept {
    Real const factor = scale / static_cast<Real>(probabilities.rows);
    for (std::size_t row = 0; row < probabilities.rows; ++row) {
        Real* const values = probabilities.row(row);
        values[targets[row]] -= Real{1};
        for (std::size_t column = 0; column < probabilities.columns; ++column) {
            values[column] *= factor;
        }
    }
}

} // namespace gpt
