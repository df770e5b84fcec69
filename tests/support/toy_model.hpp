#pragma once

#include <zero/core/convert.hpp>
#include <zero/core/host_device.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/layout/parameter_spec.hpp>
#include <zero/stage/parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zero::test {

/// Returns a number in [-1, 1) that depends only on the arguments.
ZERO_HOST_DEVICE constexpr float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0,
                                       std::uint64_t d = 0) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15U ^ (b + 0x7f4a7c15U) * 0xbf58476d1ce4e5b9U
                      ^ (c + 0x1ce4e5b9U) * 0x94d049bb133111ebU ^ (d + 1) * 0xd6e8feb86659fd93U;
    x ^= x >> 31U;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 29U;
    return static_cast<float>(x >> 40U) * 0x1.0p-23F - 1.0F;
}

/// Returns three layers between an embedding and a head that share the first parameter, with one
/// frozen parameter, one empty parameter and two groups.
inline std::vector<ParameterSpec> toy_specs() {
    return {{"embedding", 300, {0, 4}, 0, true}, {"first.weight", 500, {1}, 0, true},
            {"first.bias", 7, {1}, 1, true},     {"second.weight", 129, {2}, 0, true},
            {"second.table", 40, {2}, 0, false}, {"third.weight", 64, {3}, 0, true},
            {"third.empty", 0, {3}, 0, true},    {"head.scale", 1, {4}, 1, true}};
}

/// Returns the registration of `specs` with initial values from `noise`, the same on every rank.
template <class T, class G = T>
std::vector<Parameter<T, G>> registration(std::vector<ParameterSpec> const& specs) {
    std::vector<Parameter<T, G>> parameters;
    for (std::size_t index = 0; index < specs.size(); ++index) {
        Parameter<T, G> parameter;
        parameter.name = specs[index].name;
        parameter.elements = specs[index].elements;
        parameter.units = specs[index].units;
        parameter.group = specs[index].group;
        parameter.trainable = specs[index].trainable;
        parameter.rows = specs[index].rows;
        parameter.shape = specs[index].shape;
        parameter.update = specs[index].update;
        parameter.initialise = [index](std::size_t begin, std::span<T> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = from_float<T>(noise(1, index, begin + i));
            }
        };
        parameters.push_back(parameter);
    }
    return parameters;
}

/// Passes through a model: acquires every unit in forward order, then again in `order`; if that is
/// empty, in reverse order. `write(unit, parameter, weights, gradient)` writes the gradients of the
/// unit, whose weights it may read.
template <class Engine, class Write>
void pass_through(Engine& engine, Write const& write, std::vector<std::size_t> const& order = {}) {
    auto const& layout = engine.layout();
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        auto const weights = engine.acquire(unit);
    }
    for (std::size_t position = 0; position < (order.empty() ? layout.units() : order.size());
         ++position) {
        std::size_t const unit = order.empty() ? layout.units() - 1 - position : order[position];
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : layout.unit_parameters(unit)) {
            write(unit, parameter, weights, gradients[parameter]);
        }
        engine.gradients_ready(unit);
    }
}

/// Runs one micro-step of a model whose gradients are noise. Gradients of neighbouring elements
/// differ by up to 2^binades.
template <class Engine>
void run_micro_step(Engine& engine, std::uint64_t rank, std::uint64_t step,
                    std::uint64_t micro_step, float scale = 1.0F, std::size_t binades = 0,
                    std::vector<std::size_t> const& order = {}) {
    using G = typename Engine::GradientType;
    auto const write = [&](std::size_t unit, std::size_t parameter, auto const& /*weights*/,
                           auto const& gradient) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            float const smaller =
                1.0F / static_cast<float>(std::uint64_t{1} << i * 7 % (binades + 1));
            float const added =
                smaller * scale
                * noise(2 + rank * 100 + unit, parameter, i, step * 16 + micro_step);
            gradient[i] = from_float<G>(to_float(gradient[i]) + added);
        }
    };
    pass_through(engine, write, order);
}

/// Two units of parameters of equal size, for numbers of ranks that divide them evenly.
inline std::vector<ParameterSpec> even_specs(std::size_t elements) {
    return {{"first", elements / 2, {0}, 0, true}, {"second", elements / 2, {1}, 0, true}};
}

template <class Engine>
auto run_step(Engine& engine, std::uint64_t rank, std::uint64_t step, std::size_t micro_steps = 1,
              double learning_rate = 0.01, std::size_t binades = 0,
              std::vector<std::size_t> const& order = {}) {
    engine.begin_step();
    float const scale = engine.loss_scale();
    for (auto const micro_step : engine.micro_steps(micro_steps)) {
        run_micro_step(engine, rank, step, micro_step, scale, binades, order);
    }
    return engine.step(learning_rate);
}

/// Returns all parameters as floats. Collective.
template <class Engine>
std::vector<std::vector<float>> full_parameters(Engine& engine) {
    std::vector<std::vector<float>> values;
    if constexpr (requires { engine.settle(); }) { // a test may use something else
        engine.settle();
    }
    engine.for_each_full_parameter([&](std::size_t, auto parameter) {
        values.emplace_back();
        for (auto const value : parameter) {
            values.back().push_back(to_float(value));
        }
    });
    return values;
}

} // namespace zero::test
