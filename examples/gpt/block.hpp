#pragma once

#include "attention_shape.hpp"
#include "config.hpp"
#include "parameters.hpp"
#include "unit_tensors.hpp"
#include "view.hpp"

#include <cstddef>

namespace gpt {

/// @brief Scratch memory of a backward pass, shared by all blocks.
template <class Device>
struct BackwardScratch {
    using Matrix = typename Device::Matrix;

    BackwardScratch(Device& device, Config const& config, AttentionShape const& attention)
        : BackwardScratch(device, config, attention.batch * attention.context,
                          attention.probability_rows()) {}

    Matrix d_stream; ///< gradient of the residual stream at the current point of the backward
                     ///< pass
    Matrix d_branch;
    Matrix d_qkv;
    Matrix d_hidden;
    Matrix d_scores; ///< gradients of the scores of all heads, so that a device can process them at
                     ///< once

private:
    BackwardScratch(Device& device, Config const& config, std::size_t rows, std::size_t score_rows)
        : d_stream(device.matrix(rows, config.width)), d_branch(device.matrix(rows, config.width)),
          d_qkv(device.matrix(rows, 3 * config.width)),
          d_hidden(device.matrix(rows, config.hidden_width())),
          d_scores(device.matrix(score_rows, config.context)) {}
};

/// @brief One transformer block: stream += attention(norm(stream)); stream += mlp(norm(stream)). It
/// keeps the activations of its last forward pass. The caller passes its parameters, in the order
/// of `BlockParameter`.
template <class Device>
class Block {
public:
    using Real = typename Device::Real;
    using Matrix = typename Device::Matrix;

    Block(Device& device, Config const& config, AttentionShape const& attention)
        : Block(device, config, attention, attention.batch * attention.context) {}

    Matrix& input() noexcept {
        return _input;
    } ///< the stream before this block, written by the previous unit

    void forward(Device& device, UnitTensors<Device> const& parameters, View<Real> output) {
        auto const weight = [&](BlockParameter which) {
            return parameters.weight(static_cast<std::size_t>(which));
        };
        using enum BlockParameter;

        device.norm_forward(_input, weight(norm1_weight), weight(norm1_bias), _norm1,
                            _normed1.view());
        device.linear_forward(_normed1, weight(qkv_weight), weight(qkv_bias), _qkv.view());
        device.forward(_attention, _qkv, _probabilities.view(), _attended.view());
        device.linear_forward(_attended, weight(projection_weight), weight(projection_bias),
                              _middle.view());
        device.add(_input, _middle, _middle.view());

        device.norm_forward(_middle, weight(norm2_weight), weight(norm2_bias), _norm2,
                            _normed2.view());
        device.linear_forward(_normed2, weight(up_weight), weight(up_bias), _up.view());
        device.gelu_forward(_up, _hidden.view());
        device.linear_forward(_hidden, weight(down_weight), weight(down_bias), output);
        device.add(_middle, output, output);
    }

    /// @brief Turns `scratch.d_stream` from the gradient of the output into that of the input and
    /// overwrites the gradients of the parameters. Both branches add to the gradient of the
    /// residual path.
    void backward(Device& device, UnitTensors<Device>& parameters,
                  BackwardScratch<Device>& scratch) {
        auto const weight = [&](BlockParameter which) {
            return parameters.weight(static_cast<std::size_t>(which));
        };
        auto const gradient = [&](BlockParameter which) {
            return parameters.gradient(static_cast<std::size_t>(which));
        };
        using enum BlockParameter;
        View<Real> const d_stream = scratch.d_stream;
        View<Real> const d_branch = scratch.d_branch;
        View<Real> const d_hidden = scratch.d_hidden;
        View<Real> const d_qkv = scratch.d_qkv;

        device.linear_backward(d_stream, _hidden, weight(down_weight), d_hidden,
                               gradient(down_weight), gradient(down_bias));
        device.gelu_backward(_up, d_hidden);
        device.linear_backward(d_hidden, _normed2, weight(up_weight), d_branch, gradient(up_weight),
                               gradient(up_bias));
        device.norm_backward(d_branch, weight(norm2_weight), _norm2, d_stream,
                             gradient(norm2_weight), gradient(norm2_bias));

        device.linear_backward(d_stream, _attended, weight(projection_weight), d_branch,
                               gradient(projection_weight), gradient(projection_bias));
        device.backward(_attention, _qkv, _probabilities.view(), d_branch, scratch.d_scores.view(),
                        d_qkv);
        device.linear_backward(d_qkv, _normed1, weight(qkv_weight), d_branch, gradient(qkv_weight),
                               gradient(qkv_bias));
        device.norm_backward(d_branch, weight(norm1_weight), _norm1, d_stream,
                             gradient(norm1_weight), gradient(norm1_bias));
    }

private:
    Block(Device& device, Config const& config, AttentionShape const& attention, std::size_t rows)
        : _input(device.matrix(rows, config.width)), _middle(device.matrix(rows, config.width)),
          _norm1{device.matrix(rows, config.width), device.buffer(rows)},
          _norm2{device.matrix(rows, config.width), device.buffer(rows)},
          _normed1(device.matrix(rows, config.width)), _normed2(device.matrix(rows, config.width)),
          _qkv(device.matrix(rows, 3 * config.width)), _attended(device.matrix(rows, config.width)),
          _up(device.matrix(rows, config.hidden_width())),
          _hidden(device.matrix(rows, config.hidden_width())),
          _probabilities(device.matrix(attention.probability_rows(), attention.context)),
          _attention(attention) {}

    Matrix _input;
    Matrix _middle; // the stream between attention and MLP
    typename Device::NormCache _norm1;
    typename Device::NormCache _norm2;
    Matrix _normed1;
    Matrix _normed2;
    Matrix _qkv;
    Matrix _attended;
    Matrix _up;     // before the activation
    Matrix _hidden; // after the activation
    Matrix _probabilities;
    AttentionShape _attention;
};

} // namespace gpt
