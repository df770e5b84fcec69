#pragma once

#include "elementary.hpp"
#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gpt {

/// @brief Causal multi-head self-attention over a batch of samples of `context` tokens.
///
/// Rows are tokens, sample after sample. `qkv` holds queries, keys and values side by side, [rows x 3 width]; a head is a range
/// of columns in each third. The probabilities of the forward pass are kept for the backward pass.
template <class Real>
class Attention {
public:
    Attention() = default;
    Attention(std::size_t batch, std::size_t context, std::size_t heads, std::size_t head_width)
        : _batch(batch), _context(context), _heads(heads), _head_width(head_width),
          _probabilities(batch * heads * context, context) {}

    /// @param result [rows x width], overwritten
    void forward(Input<Real> qkv, View<Real> result) {
        Real const scale = Real{1} / std::sqrt(static_cast<Real>(_head_width));
        for_each_head(_probabilities.view(), [&](std::size_t sample, std::size_t head, View<Real> probabilities) {
            auto const [query, key, value] = parts(qkv, sample, head);
            multiply_nt(query, key, probabilities);
            for (std::size_t row = 0; row < _context; ++row) {
                Real* const scores = probabilities.row(row);
                std::size_t const visible = row + 1;
                for (std::size_t column = 0; column < visible; ++column) {
                    scores[column] *= scale;
                }
                softmax(scores, visible);
                std::fill(scores + visible, scores + _context, Real{0}); // a token does not see what follows it
            }
            multiply_nn(probabilities, value, columns_of(result, sample, head, 0));
        });
    }

    /// @param scratch [context x context]
    /// @param d_qkv [rows x 3 width], overwritten
    void backward(Input<Real> qkv, Input<Real> d_result, View<Real> scratch, View<Real> d_qkv) const {
        Real const scale = Real{1} / std::sqrt(static_cast<Real>(_head_width));
        for_each_head(_probabilities.view(), [&](std::size_t sample, std::size_t head, View<Real const> probabilities) {
            auto const [query, key, value] = parts(qkv, sample, head);
            auto const [d_query, d_key, d_value] = parts(d_qkv, sample, head);
            auto const d_out = columns_of(d_result, sample, head, 0);
            multiply_tn(probabilities, d_out, d_value);
            multiply_nt(d_out, value, scratch);
            for (std::size_t row = 0; row < _context; ++row) {
                Real const* const probability = probabilities.row(row);
                Real* const gradient = scratch.row(row);
                std::size_t const visible = row + 1;
                Real const mean = sum_of<Real>(visible, [=](std::size_t i) { return probability[i] * gradient[i]; });
                for (std::size_t column = 0; column < visible; ++column) {
                    gradient[column] = probability[column] * (gradient[column] - mean) * scale;
                }
                std::fill(gradient + visible, gradient + _context, Real{0});
            }
            multiply_nn(scratch, key, d_query);
            multiply_tn(scratch, query, d_key);
        });
    }

private:
    template <class T>
    struct Parts {
        View<T> query;
        View<T> key;
        View<T> value;
    };

    template <class T>
    View<T> columns_of(View<T> all, std::size_t sample, std::size_t head, std::size_t third) const noexcept {
        std::size_t const first = (third * _heads + head) * _head_width;
        return all.slice_rows(sample * _context, _context).slice_columns(first, _head_width);
    }
    template <class T>
    Parts<T> parts(View<T> qkv, std::size_t sample, std::size_t head) const noexcept {
        return {columns_of(qkv, sample, head, 0), columns_of(qkv, sample, head, 1), columns_of(qkv, sample, head, 2)};
    }
    template <class T, class Body>
    void for_each_head(View<T> probabilities, Body const& body) const {
        for (std::size_t sample = 0; sample < _batch; ++sample) {
            for (std::size_t head = 0; head < _heads; ++head) {
                body(sample, head, probabilities.slice_rows((sample * _heads + head) * _context, _context));
            }
        }
    }

    std::size_t _batch = 0;
    std::size_t _context = 0;
    std::size_t _heads = 0;
    std::size_t _head_width = 0;
    Matrix<Real> _probabilities;
};

} // namespace gpt
