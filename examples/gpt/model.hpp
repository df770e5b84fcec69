#pragma once

#include "block.hpp"
#include "config.hpp"
#include "layers.hpp"
#include "matrix.hpp"
#include "parameters.hpp"
#include "unit_tensors.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {

/// @brief A GPT as a sequence of units, each with a forward and a hand-written backward function.
///
/// The model owns activations and scratch memory for one batch and no parameter: every function is handed the weights of its
/// unit, and a place to add gradients to, as anything that gives a span for a parameter index (`f(index)` or `f[index]`). The
/// spans are read or written during the call only. The weights may be stored in a shorter type than `Real`, the type of the
/// arithmetic.
///
/// Order of calls: `embedding_forward`, `block_forward` for layers 0, 1, ..., then `head_forward` (evaluation), or
/// `head_forward_backward`, `block_backward` for layers ..., 1, 0 and `embedding_backward`.
template <class Real = float>
class Model {
public:
    /// @param batch samples of `config.context` tokens in each call
    Model(Config const& config, std::size_t batch)
        : _config(config), _batch(batch), _embedding(elements_of(config, embedding_parameters())),
          _block(elements_of(config, block_parameters(0))),
          _head(elements_of(config, head_parameters(config))), _stream(rows(), config.width), _final_norm(rows(), config.width),
          _final(rows(), config.width), _logits(rows(), Config::vocabulary), _scratch(config, rows()) {
        _blocks.reserve(config.layers);
        for (std::size_t layer = 0; layer < config.layers; ++layer) {
            _blocks.emplace_back(config, batch);
        }
    }

    Config const& config() const noexcept { return _config; }
    std::size_t batch() const noexcept { return _batch; }
    std::size_t rows() const noexcept { return _batch * _config.context; } ///< tokens of one batch

    /// @brief Starts a forward pass: the stream becomes wte[token] + wpe[position]. Unit `embedding_unit()`.
    template <class Weights>
    void embedding_forward(Weights&& weights, std::span<std::uint8_t const> tokens) {
        check_size(tokens);
        _embedding.load_all(weights, embedding_parameters());
        Matrix<Real>& out = _blocks.front().input();
        for (std::size_t row = 0; row < rows(); ++row) {
            Real const* const token = _embedding.weight(0) + tokens[row] * _config.width;
            Real const* const position = _embedding.weight(1) + row % _config.context * _config.width;
            for (std::size_t column = 0; column < _config.width; ++column) {
                out.row(row)[column] = token[column] + position[column];
            }
        }
    }

    /// @brief Unit `block_unit(layer)`.
    template <class Weights>
    void block_forward(std::size_t layer, Weights&& weights) {
        _block.load_all(weights, block_parameters(layer));
        bool const is_last = layer + 1 == _config.layers;
        _blocks[layer].forward(_block, is_last ? _stream.view() : _blocks[layer + 1].input().view());
    }

    /// @brief The mean loss of the batch in nats a token, without preparing a backward pass. Unit `head_unit()`.
    template <class Weights>
    double head_forward(Weights&& weights, std::span<std::uint8_t const> targets) {
        check_size(targets);
        _head.load_all(weights, head_parameters(_config));
        norm_forward(_stream, _head.weight(0), _head.weight(1), _final_norm, _final.view());
        multiply_nt(_final, token_embedding(_head.weight(2)), _logits.view());
        return cross_entropy(_logits.view(), targets);
    }

    /// @brief The loss as above; adds the gradients of `loss_scale` times the loss.
    template <class Weights, class Gradients>
    double head_forward_backward(Weights&& weights, Gradients&& gradients, std::span<std::uint8_t const> targets, Real loss_scale) {
        double const loss = head_forward(weights, targets);
        cross_entropy_backward(_logits.view(), targets, loss_scale);
        multiply_nn(_logits, token_embedding(_head.weight(2)), _scratch.d_branch.view());
        multiply_tn(_logits, _final, token_embedding(_head.gradient(2)));
        _scratch.d_stream.clear();
        norm_backward(_scratch.d_branch, _head.weight(0), _final_norm, _scratch.d_stream.view(), _head.gradient(0), _head.gradient(1));
        _head.add_all(gradients, head_parameters(_config));
        return loss;
    }

    template <class Weights, class Gradients>
    void block_backward(std::size_t layer, Weights&& weights, Gradients&& gradients) {
        _block.load_all(weights, block_parameters(layer));
        _blocks[layer].backward(_block, _scratch);
        _block.add_all(gradients, block_parameters(layer));
    }

    /// @brief Ends a backward pass; it needs no weights.
    template <class Gradients>
    void embedding_backward(Gradients&& gradients, std::span<std::uint8_t const> tokens) {
        check_size(tokens);
        std::fill_n(_embedding.gradient(0), Config::vocabulary * _config.width, Real{0});
        std::fill_n(_embedding.gradient(1), _config.context * _config.width, Real{0});
        for (std::size_t row = 0; row < rows(); ++row) {
            Real const* const d_stream = _scratch.d_stream.row(row);
            Real* const token = _embedding.gradient(0) + tokens[row] * _config.width;
            Real* const position = _embedding.gradient(1) + row % _config.context * _config.width;
            for (std::size_t column = 0; column < _config.width; ++column) {
                token[column] += d_stream[column];
                position[column] += d_stream[column];
            }
        }
        _embedding.add_all(gradients, embedding_parameters());
    }

private:
    // The parameters of a unit as indices into the list, in the order of the unit's tensors.
    template <std::size_t Count>
    using Indices = std::array<std::size_t, Count>;

    static constexpr Indices<2> embedding_parameters() noexcept { return {token_embedding_index, position_embedding_index}; }
    static constexpr Indices<3> head_parameters(Config const& config) noexcept {
        return {final_norm_weight_index(config), final_norm_bias_index(config), token_embedding_index};
    }
    static constexpr Indices<block_parameter_count> block_parameters(std::size_t layer) noexcept {
        Indices<block_parameter_count> indices{};
        for (std::size_t place = 0; place < indices.size(); ++place) {
            indices[place] = block_parameter_index(layer, static_cast<BlockParameter>(place));
        }
        return indices;
    }
    static std::vector<std::size_t> elements_of(Config const& config, std::span<std::size_t const> parameters) {
        auto const list = parameters_of(config);
        std::vector<std::size_t> elements;
        for (std::size_t const index : parameters) {
            elements.push_back(list[index].elements);
        }
        return elements;
    }

    template <class T>
    View<T> token_embedding(T* data) const noexcept {
        return {data, Config::vocabulary, _config.width, _config.width};
    }

    void check_size(std::span<std::uint8_t const> tokens) const {
        if (tokens.size() != rows()) {
            throw std::invalid_argument("gpt: a batch has " + std::to_string(rows()) + " tokens, not " + std::to_string(tokens.size()));
        }
    }

    Config _config;
    std::size_t _batch;
    UnitTensors<Real> _embedding;
    UnitTensors<Real> _block; // shared by all blocks: one is at work at a time
    UnitTensors<Real> _head;
    std::vector<Block<Real>> _blocks;
    Matrix<Real> _stream; // after the last block
    NormCache<Real> _final_norm;
    Matrix<Real> _final;
    Matrix<Real> _logits;
    BackwardScratch<Real> _scratch;
};

} // namespace gpt
