#pragma once

#include "toy_model.hpp"

#include <zero/stage/tiles.hpp>
#include <zero/stage/training_state.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zero::test {

inline constexpr std::size_t no_tiles = 0; ///< the matrix is registered as a whole

/// Returns a matrix between two vectors, registered in tiles. Values depend on the element only.
template <class T>
std::vector<Parameter<T>> tiled_model(std::size_t count,
                                      std::vector<std::size_t> const& shape = {30, 11}) {
    std::vector<Parameter<T>> list;
    auto const parameter = [&](char const* name, std::size_t unit,
                               std::vector<std::size_t> const& sizes) {
        Parameter<T> made;
        made.name = name;
        made.shape = sizes;
        made.units = {unit};
        std::size_t const key = sizes.front();
        made.initialise = [key](std::size_t begin, std::span<T> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = from_float<T>(noise(1, key, begin + i));
            }
        };
        made.is_deterministic = true;
        return made;
    };
    std::size_t const tiles_used = count == no_tiles ? 1 : count;
    list.push_back(parameter("first", 0, {40}));
    Parameter<T> const weight = parameter("weight", 1, shape);
    if (count == no_tiles) {
        list.push_back(weight);
    } else {
        for (auto const& tile : tiles(weight, count)) {
            list.push_back(tile);
        }
    }
    list.push_back(parameter("last", 1 + tiles_used, {70}));
    return list;
}

/// Runs one micro-step with gradients that depend on the number of the element in the model.
template <class Engine>
void run_tiled_micro_step(Engine& engine, std::uint64_t rank, std::uint64_t step) {
    using G = typename Engine::GradientType;
    pass_through(engine,
                 [&](std::size_t, std::size_t parameter, auto const&, auto const& gradient) {
                     for (std::size_t i = 0; i < gradient.size(); ++i) {
                         std::size_t const element = engine.layout().first_element(parameter) + i;
                         gradient[i] = from_float<G>(noise(rank, element, step));
                     }
                 });
}

template <class Engine>
void run_tiled_step(Engine& engine, std::uint64_t rank, std::uint64_t step) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(1)) {
        run_tiled_micro_step(engine, rank, step);
    }
    (void)engine.step(0.01);
}

/// Returns weights and states of all parameters one after the other. Collective.
template <class Engine>
std::vector<float> tiled_state(Engine& engine) {
    TrainingState state(engine);
    std::vector<float> all;
    auto const append = [&](std::vector<float> const& values) {
        all.insert(all.end(), values.begin(), values.end());
    };
    for (auto const& parameter : full_parameters(engine)) {
        append(parameter);
    }
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        append(state.full_fp32_parameter(p));
    }
    for (std::string const& name : state.state_names()) {
        for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
            append(state.full_optimizer_state(p, name));
        }
    }
    return all;
}

} // namespace zero::test
