#pragma once

#include "attention_shape.hpp"
#include "elementary.hpp"
#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gpt {

/// @brief Attention on the host, one head at a time.
template <class Real>
struct HostAttention {
    /// @param result [rows x width], overwritten
    static void forward(AttentionShape const& shape, Input<Real> qkv, View<Real> all_probabilities,
                        View<Real> result) {
        Real const scale = Real{1} / std::sqrt(static_cast<Real>(shape.head_width));
        for_each_head(shape, [&](std::size_t sample, std::size_t head) {
            View<Real> const probabilities = shape.scores(all_probabilities, sample, head);
            auto const [query, key, value] = shape.parts(qkv, sample, head);
            multiply_nt(query, key, probabilities);
            for (std::size_t row = 0; row < shape.context; ++row) {
                Real* const scores = probabilities.row(row);
                std::size_t const visible = row + 1;
                for (std::size_t column = 0; column < visible; ++column) {
                    scores[column] *= scale;
                }
                softmax(scores, visible);
                std::fill(scores + visible, scores + shape.context,
                          Real{0}); // causal: a token does not see later tokens
            }
            multiply_nn(probabilities, value, shape.columns_of(result, sample, head, 0));
        });
    }

    /// @param d_scores scratch of the size of the probabilities
    /// @param d_qkv [rows x 3 width], overwritten
    static void backward(AttentionShape const& shape, Input<Real> qkv,
                         Input<Real> all_probabilities, Input<Real> d_result, View<Real> d_scores,
                         View<Real> d_qkv) {
        Real const scale = Real{1} / std::sqrt(static_cast<Real>(shape.head_width));
        for_each_head(shape, [&](std::size_t sample, std::size_t head) {
            View<Real const> const probabilities = shape.scores(all_probabilities, sample, head);
            View<Real> const scratch = shape.scores(d_scores, sample, head);
            auto const [query, key, value] = shape.parts(qkv, sample, head);
            auto const [d_query, d_key, d_value] = shape.parts(d_qkv, sample, head);
            auto const d_out = shape.columns_of(d_result, sample, head, 0);
            multiply_tn(probabilities, d_out, d_value);
            multiply_nt(d_out, value, scratch);
            for (std::size_t row = 0; row < shape.context; ++row) {
                Real const* const probability = probabilities.row(row);
                Real* const gradient = scratch.row(row);
                std::size_t const visible = row + 1;
                Real const mean = sum_of<Real>(
                    visible, [=](std::size_t i) { return probability[i] * gradient[i]; });
                for (std::size_t column = 0; column < visible; ++column) {
                    gradient[column] = probability[column] * (gradient[column] - mean) * scale;
                }
                std::fill(gradient + visible, gradient + shape.context, Real{0});
            }
            multiply_nn(scratch, key, d_query);
            multiply_tn(scratch, query, d_key);
        });
    }

private:
    template <class Body>
    static void for_each_head(AttentionShape const& shape, Body const& body) {
        for (std::size_t sample = 0; sample < shape.batch; ++sample) {
            for (std::size_t head = 0; head < shape.heads; ++head) {
                body(sample, head);
            }
        }
    }
};

} // namespace gpt
