#pragma once

// A model whose gradients depend on the weights that were read, and a straight-line reference of
// what is read: each master weight is rounded to the parameter type, and the blocks of each
// parameter pass through the codec.

#include "gradient_codes_model.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/core/convert.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace zero::test::wire_model {

using Values = std::vector<std::vector<float>>;

/// The weights that a pass reads.
template <class C, class T>
std::vector<float> coded(std::vector<float> const& masters) {
    auto const rounded = [](std::vector<float> const& values) {
        return gradient_codes::through<Plain, T>(values);
    };
    return rounded(gradient_codes::through<C>(rounded(masters)));
}

/// Returns the initial values of a parameter of `registration`, rounded.
template <class T>
std::vector<float> initial_values(std::size_t parameter, std::size_t elements) {
    std::vector<float> values;
    for (std::size_t i = 0; i < elements; ++i) {
        values.push_back(to_float(from_float<T>(noise(1, parameter, i))));
    }
    return values;
}

/// One step of two micro-steps whose gradients are half of the weights, and noise.
/// @param poison an element of gradient of parameter 1 that is infinite on rank 0
template <class Engine>
auto step_of(Engine& engine, std::uint64_t rank, std::uint64_t step, bool poison = false) {
    using G = typename Engine::GradientType;
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(2)) {
        pass_through(engine, [&](std::size_t, std::size_t parameter, auto const& weights,
                                 auto const& gradient) {
            auto const read = weights[parameter];
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float const added = 0.5F * to_float(read[i])
                                    + noise(2 + rank, parameter, i, step * 16 + micro_step);
                gradient[i] = from_float<G>(to_float(gradient[i]) + added);
            }
            if (poison && rank == 0 && parameter == 1) {
                gradient[5] = from_float<G>(std::numeric_limits<float>::infinity());
            }
        });
    }
    return engine.step(0.05);
}

/// The master weights that a rank updates; zero elsewhere.
template <class Engine>
Values own_masters(Engine& engine) {
    Trained own;
    std::vector<ParameterSpec> const specs(engine.layout().parameters().begin(),
                                           engine.layout().parameters().end());
    own.resize(specs);
    engine.for_each_owned_slice([&](auto const& slice) { own.add(slice); });
    return own.masters;
}

/// Whether what this rank reads follows from its master weights.
template <class C, class Engine>
bool reads_codes(Engine& engine) {
    using T = typename Engine::ParameterType;
    Values const read = full_parameters(engine);
    bool is_equal = true;
    engine.for_each_owned_slice([&](auto const& slice) {
        std::vector<float> masters;
        for (std::size_t i = 0; i < slice.values.size(); ++i) {
            masters.push_back(slice.master_weight(i));
        }
        auto const expected = coded<C, T>(masters);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            is_equal =
                is_equal
                && std::bit_cast<std::uint32_t>(expected[i])
                       == std::bit_cast<std::uint32_t>(read[slice.parameter][slice.begin + i]);
        }
    });
    return is_equal;
}

} // namespace zero::test::wire_model
