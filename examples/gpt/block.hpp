#pragma once

#include "attention.hpp"
#include "config.hpp"
#include "layers.hpp"
#include "matrix.hpp"
#include "parameters.hpp"
#include "unit_tensors.hpp"

#include <cstddef>

namespace gpt {

/// @brief Scratch memory of a backward pass, shared by all blocks.
template <class Real>
struct BackwardScratch {
    BackwardScratch(Config const& config, std::size_t rows)
        : d_stream(rows, config.width), d_branch(rows, config.width), d_qkv(rows, 3 * config.width),
          d_hidden(rows, config.hidden_width()), d_scores(config.context, config.context) {}

    Matrix<Real> d_stream; ///< gradient of the residual stream at the point that the backward pass has reached
    Matrix<Real> d_branch;
    Matrix<Real> d_qkv;
    Matrix<Real> d_hidden;
    Matrix<Real> d_scores;
};

/// @brief One transformer block: stream += attention(norm(stream)); stream += mlp(norm(stream)). It keeps the activations of its
/// last forward pass; its parameters come from outside in the order of `BlockParameter`.
template <class Real>
class Block {
public:
    Block(Config const& config, std::size_t batch) : Block(config, batch, batch * config.context) {}

    Matrix<Real>& input() noexcept { return _input; } ///< the stream before this block, written by whoever comes before

    void forward(UnitTensors<Real> const& parameters, View<Real> output) {
        auto const weight = [&](BlockParameter which) { return parameters.weight(static_cast<std::size_t>(which)); };
        using enum BlockParameter;

        norm_forward(_input, weight(norm1_weight), weight(norm1_bias), _norm1, _normed1.view());
        linear_forward(_normed1, weight(qkv_weight), weight(qkv_bias), _qkv.view());
        _attention.forward(_qkv, _attended.view());
        linear_forward(_attended, weight(projection_weight), weight(projection_bias), _middle.view());
        add(_input, _middle, _middle.view());

        norm_forward(_middle, weight(norm2_weight), weight(norm2_bias), _norm2, _normed2.view());
        linear_forward(_normed2, weight(up_weight), weight(up_bias), _up.view());
        gelu_forward(_up, _hidden.view());
        linear_forward(_hidden, weight(down_weight), weight(down_bias), output);
        add(_middle, output, output);
    }

    /// @brief Turns `scratch.d_stream` from the gradient of the output into that of the input and overwrites the parameters'
    /// gradients. Both branches add to what passes along the residual path.
    void backward(UnitTensors<Real>& parameters, BackwardScratch<Real>& scratch) {
        auto const weight = [&](BlockParameter which) { return parameters.weight(static_cast<std::size_t>(which)); };
        auto const gradient = [&](BlockParameter which) { return parameters.gradient(static_cast<std::size_t>(which)); };
        using enum BlockParameter;
        View<Real> const d_stream = scratch.d_stream;
        View<Real> const d_branch = scratch.d_branch;
        View<Real> const d_hidden = scratch.d_hidden;
        View<Real> const d_qkv = scratch.d_qkv;

        linear_backward(d_stream, _hidden, weight(down_weight), d_hidden, gradient(down_weight), gradient(down_bias));
        gelu_backward(_up, d_hidden);
        linear_backward(d_hidden, _normed2, weight(up_weight), d_branch, gradient(up_weight), gradient(up_bias));
        norm_backward(d_branch, weight(norm2_weight), _norm2, d_stream, gradient(norm2_weight), gradient(norm2_bias));

        linear_backward(d_stream, _attended, weight(projection_weight), d_branch, gradient(projection_weight),
                        gradient(projection_bias));
        _attention.backward(_qkv, d_branch, scratch.d_scores.view(), d_qkv);
        linear_backward(d_qkv, _normed1, weight(qkv_weight), d_branch, gradient(qkv_weight), gradient(qkv_bias));
        norm_backward(d_branch, weight(norm1_weight), _norm1, d_stream, gradient(norm1_weight), gradient(norm1_bias));
    }

private:
    Block(Config const& config, std::size_t batch, std::size_t rows)
        : _input(rows, config.width), _middle(rows, config.width), _norm1(rows, config.width), _norm2(rows, config.width),
          _normed1(rows, config.width), _normed2(rows, config.width), _qkv(rows, 3 * config.width), _attended(rows, config.width),
          _up(rows, config.hidden_width()), _hidden(rows, config.hidden_width()),
          _attention(batch, config.context, config.heads, config.head_width()) {}

    Matrix<Real> _input;
    Matrix<Real> _middle; // the stream between attention and MLP
    NormCache<Real> _norm1;
    NormCache<Real> _norm2;
    Matrix<Real> _normed1;
    Matrix<Real> _normed2;
    Matrix<Real> _qkv;
    Matrix<Real> _attended;
    Matrix<Real> _up;     // before the activation
    Matrix<Real> _hidden; // after it
    Attention<Real> _attention;
};

} // namespace gpt
