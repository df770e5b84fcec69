#pragma once

#include "config.hpp"
#include "random.hpp"
#include "storage.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

enum class Initialisation : std::uint8_t { zeros, ones, normal };

/// @brief One parameter as a trainer sees it. Its position in the list is its index.
struct Parameter {
    std::string name;
    std::size_t elements = 0;
    std::vector<std::size_t> units; ///< units that use it: one, or two for the tied token embedding
    Initialisation initialisation = Initialisation::zeros;
    double deviation = 0.0; ///< standard deviation of `Initialisation::normal`
    bool is_matrix = false; ///< weight decay usually applies to matrices only
};

/// @brief The parameters of a block by their place inside the block.
enum class BlockParameter : std::size_t {
    norm1_weight,
    norm1_bias,
    qkv_weight,
    qkv_bias,
    projection_weight,
    projection_bias,
    norm2_weight,
    norm2_bias,
    up_weight,
    up_bias,
    down_weight,
    down_bias,
    count
};

inline constexpr std::size_t block_parameter_count =
    static_cast<std::size_t>(BlockParameter::count);

// Indices into the list, in registration order, which is the order of the forward pass.
inline constexpr std::size_t token_embedding_index = 0;
inline constexpr std::size_t position_embedding_index = 1;

constexpr std::size_t block_parameter_index(std::size_t layer, BlockParameter which) noexcept {
    return 2 + layer * block_parameter_count + static_cast<std::size_t>(which);
}
constexpr std::size_t final_norm_weight_index(Config const& config) noexcept {
    return 2 + config.layers * block_parameter_count;
}
constexpr std::size_t final_norm_bias_index(Config const& config) noexcept {
    return final_norm_weight_index(config) + 1;
}

namespace detail {

class ParameterList {
public:
    void matrix(std::string name, std::size_t rows, std::size_t columns,
                std::vector<std::size_t> units, double deviation) {
        _parameters.push_back({std::move(name), rows * columns, std::move(units),
                               Initialisation::normal, deviation, true});
    }
    void vector(std::string name, std::size_t elements, std::size_t unit,
                Initialisation initialisation) {
        _parameters.push_back({std::move(name), elements, {unit}, initialisation, 0.0, false});
    }
    void norm(std::string const& name, std::size_t width, std::size_t unit) {
        vector(name + ".weight", width, unit, Initialisation::ones);
        vector(name + ".bias", width, unit, Initialisation::zeros);
    }
    void linear(std::string const& name, std::size_t inputs, std::size_t outputs, std::size_t unit,
                double deviation) {
        matrix(name + ".weight", inputs, outputs, {unit}, deviation);
        vector(name + ".bias", outputs, unit, Initialisation::zeros);
    }
    std::vector<Parameter> take() { return std::move(_parameters); }

private:
    std::vector<Parameter> _parameters;
};

} // namespace detail

/// @brief Returns all parameters in registration order. Weights of linear layers are [inputs x
/// outputs], row after row.
inline std::vector<Parameter> parameters_of(Config const& config) {
    constexpr double deviation = 0.02;
    // 2 * layers terms are added to the residual stream: this keeps the variance of their sum
    // independent of the depth.
    double const residual_deviation =
        deviation / std::sqrt(2.0 * static_cast<double>(config.layers));
    std::size_t const width = config.width;

    detail::ParameterList list;
    // The head reuses the token embedding: one parameter, two units.
    list.matrix("wte", Config::vocabulary, width, {Config::embedding_unit(), config.head_unit()},
                deviation);
    list.matrix("wpe", config.context, width, {Config::embedding_unit()}, deviation);
    for (std::size_t layer = 0; layer < config.layers; ++layer) {
        std::string const prefix = "block" + std::to_string(layer) + ".";
        std::size_t const unit = Config::block_unit(layer);
        list.norm(prefix + "ln1", width, unit);
        list.linear(prefix + "qkv", width, 3 * width, unit, deviation);
        list.linear(prefix + "projection", width, width, unit, residual_deviation);
        list.norm(prefix + "ln2", width, unit);
        list.linear(prefix + "up", width, config.hidden_width(), unit, deviation);
        list.linear(prefix + "down", config.hidden_width(), width, unit, residual_deviation);
    }
    list.norm("lnf", width, config.head_unit());
    return list.take();
}

/// @brief Returns the initial value of one element. A pure function, so any slice of a parameter
/// can be initialised anywhere.
inline float initial_value(Parameter const& parameter, std::size_t parameter_index,
                           std::size_t element, std::uint64_t seed) noexcept {
    switch (parameter.initialisation) {
    case Initialisation::zeros: return 0.0F;
    case Initialisation::ones: return 1.0F;
    case Initialisation::normal: break;
    }
    return static_cast<float>(parameter.deviation
                              * random_normal({seed, parameter_index, element}));
}

/// @brief Fills `values` with the elements of a parameter from `begin` on, rounded to its storage
/// type.
template <class Stored>
void initialise(Parameter const& parameter, std::size_t parameter_index, std::uint64_t seed,
                std::size_t begin, std::span<Stored> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = narrow<Stored>(initial_value(parameter, parameter_index, begin + i, seed));
    }
}

} // namespace gpt
