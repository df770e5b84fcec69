#pragma once

#include "attention_shape.hpp"
#include "block.hpp"
#include "config.hpp"
#include "parameters.hpp"
#include "unit_tensors.hpp"
#include "view.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

/// @brief A GPT as a sequence of units, each with a forward and a hand-written backward function.
///
/// The model owns activations and scratch memory for one batch, and no parameter. Every function
/// takes the weights of its unit and the gradients to add to: any object that gives a span for a
/// parameter index (`f(index)` or `f[index]`). On the host a function uses the spans only during
/// the call, on a device in the order of its stream. The weights may be stored in a shorter type
/// than `Real`, the type of the arithmetic.
///
/// Order of calls: `embedding_forward`, `block_forward` for layers 0, 1, ..., then `head_forward`
/// (evaluation), or `head_forward_backward`, `block_backward` for layers ..., 1, 0 and
/// `embedding_backward`.
template <class Device>
class ModelOn {
public:
    using Real = typename Device::Real;

    /// @param batch samples of `config.context` tokens in each call
    ModelOn(Config const& config, std::size_t batch, Device device = Device())
        : _config(config), _attention{batch, config.context, config.heads, config.head_width()},
          _device(std::move(device)),
          _embedding(_device, elements_of(config, embedding_parameters())),
          _block(_device, elements_of(config, block_parameters(0))),
          _head(_device, elements_of(config, head_parameters(config))),
          _stream(_device.matrix(rows(), config.width)),
          _final_norm{_device.matrix(rows(), config.width), _device.buffer(rows())},
          _final(_device.matrix(rows(), config.width)),
          _logits(_device.matrix(rows(), Config::vocabulary)),
          _scratch(_device, config, _attention) {
        _blocks.reserve(config.layers);
        for (std::size_t layer = 0; layer < config.layers; ++layer) {
            _blocks.emplace_back(_device, config, _attention);
        }
    }

    ModelOn(ModelOn const&) = delete;
    ModelOn& operator=(ModelOn const&) = delete;

    Config const& config() const noexcept { return _config; }
    std::size_t batch() const noexcept { return _attention.batch; }
    std::size_t rows() const noexcept {
        return _attention.batch * _config.context;
    } ///< tokens of one batch
    Device& device() noexcept { return _device; }

    /// @brief Starts a forward pass: the stream becomes wte[token] + wpe[position]. Unit
    /// `embedding_unit()`.
    template <class Weights>
    void embedding_forward(Weights&& weights, std::span<std::uint8_t const> tokens) {
        check_size(tokens);
        _embedding.load_all(weights, embedding_parameters());
        _device.embed(tokens, _embedding.weight(0), _embedding.weight(1), _config.context,
                      _blocks.front().input().view());
    }

    /// @brief Unit `block_unit(layer)`.
    template <class Weights>
    void block_forward(std::size_t layer, Weights&& weights) {
        _block.load_all(weights, block_parameters(layer));
        bool const is_last = layer + 1 == _config.layers;
        _blocks[layer].forward(_device, _block,
                               is_last ? _stream.view() : _blocks[layer + 1].input().view());
    }

    /// @brief Adds the mean loss of the batch to the device's sum, without preparing a backward
    /// pass. Unit `head_unit()`.
    template <class Weights>
    void head_forward(Weights&& weights, std::span<std::uint8_t const> targets) {
        check_size(targets);
        _head.load_all(weights, head_parameters(_config));
        _device.norm_forward(_stream, _head.weight(0), _head.weight(1), _final_norm, _final.view());
        _device.product_nt(_final, token_embedding(_head.weight(2)), _logits.view());
        _device.cross_entropy(_logits.view(), targets);
    }

    /// @brief Calls `head_forward` and adds the gradients of `loss_scale` times the loss.
    template <class Weights, class Gradients>
    void head_forward_backward(Weights&& weights, Gradients&& gradients,
                               std::span<std::uint8_t const> targets,
                               typename Device::Scale loss_scale) {
        head_forward(weights, targets);
        _device.cross_entropy_backward(_logits.view(), targets, loss_scale);
        _device.product_nn(_logits, token_embedding(_head.weight(2)), _scratch.d_branch.view());
        _device.product_tn(_logits, _final, token_embedding(_head.gradient(2)));
        _device.clear(_scratch.d_stream.view());
        _device.norm_backward(_scratch.d_branch, _head.weight(0), _final_norm,
                              _scratch.d_stream.view(), _head.gradient(0), _head.gradient(1));
        _head.add_all(gradients, head_parameters(_config));
    }

    template <class Weights, class Gradients>
    void block_backward(std::size_t layer, Weights&& weights, Gradients&& gradients) {
        _block.load_all(weights, block_parameters(layer));
        _blocks[layer].backward(_device, _block, _scratch);
        _block.add_all(gradients, block_parameters(layer));
    }

    /// @brief Ends a backward pass; it needs no weights.
    template <class Gradients>
    void embedding_backward(Gradients&& gradients, std::span<std::uint8_t const> tokens) {
        check_size(tokens);
        _device.embed_backward(tokens, _scratch.d_stream.view(), Config::vocabulary,
                               _config.context, _embedding.gradient(0), _embedding.gradient(1));
        _embedding.add_all(gradients, embedding_parameters());
    }

private:
    // The parameters of a unit: indices into the list, in the order of the tensors of the unit.
    template <std::size_t Count>
    using Indices = std::array<std::size_t, Count>;

    static constexpr Indices<2> embedding_parameters() noexcept {
        return {token_embedding_index, position_embedding_index};
    }
    static constexpr Indices<3> head_parameters(Config const& config) noexcept {
        return {final_norm_weight_index(config), final_norm_bias_index(config),
                token_embedding_index};
    }
    static constexpr Indices<block_parameter_count> block_parameters(std::size_t layer) noexcept {
        Indices<block_parameter_count> indices{};
        for (std::size_t place = 0; place < indices.size(); ++place) {
            indices[place] = block_parameter_index(layer, static_cast<BlockParameter>(place));
        }
        return indices;
    }
    static std::vector<std::size_t> elements_of(Config const& config,
                                                std::span<std::size_t const> parameters) {
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
            throw std::invalid_argument("gpt: a batch has " + std::to_string(rows())
                                        + " tokens, not " + std::to_string(tokens.size()));
        }
    }

    Config _config;
    AttentionShape _attention;
    Device _device; // the device of all members below
    UnitTensors<Device> _embedding;
    UnitTensors<Device> _block; // shared by all blocks, which run one at a time
    UnitTensors<Device> _head;
    std::vector<Block<Device>> _blocks;
    typename Device::Matrix _stream; // the residual stream after the last block
    typename Device::NormCache _final_norm;
    typename Device::Matrix _final;
    typename Device::Matrix _logits;
    BackwardScratch<Device> _scratch;
};

} // namespace gpt
