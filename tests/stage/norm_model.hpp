#pragma once

#include "support/toy_model.hpp"

#include <zero/layout/parameter_spec.hpp>
#include <zero/ops/norm.hpp>
#include <zero/stage/stage_options.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace zero::test {

/// A gradient for each parameter.
using Values = std::vector<std::vector<float>>;

/// Runs one micro-step in which every unit adds `values` to its trainable parameters. A parameter
/// of n units gets them n times.
template <class Engine>
void add_values(Engine& engine, Values const& values) {
    auto const& layout = engine.layout();
    for (std::size_t unit = layout.units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : layout.unit_parameters(unit)) {
            auto const gradient = gradients[parameter];
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                gradient[i] = from_float<typename Engine::GradientType>(to_float(gradient[i])
                                                                        + values[parameter][i]);
            }
        }
        engine.gradients_ready(unit);
    }
}

/// Returns the values `make(parameter, i)` for all elements of all parameters.
template <class Make>
Values make_values(std::vector<ParameterSpec> const& specs, Make const& make) {
    Values values;
    for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
        values.emplace_back();
        for (std::size_t i = 0; i < specs[parameter].elements; ++i) {
            values.back().push_back(make(parameter, i));
        }
    }
    return values;
}

inline constexpr std::array all_norm_kinds{NormKind::l1, NormKind::l2, NormKind::infinity};
inline constexpr std::array all_scopes{NormScope::global, NormScope::groups, NormScope::parameters};

/// Returns all norms, by kind and scope: 1 + groups + parameters numbers for each kind. Collective.
template <class Engine>
std::vector<double> all_norms(Engine& engine) {
    std::vector<double> norms;
    for (auto const kind : all_norm_kinds) {
        for (auto const scope : all_scopes) {
            auto const found = engine.gradient_norms(kind, scope);
            norms.insert(norms.end(), found.begin(), found.end());
        }
    }
    return norms;
}

inline std::vector<std::uint64_t> bits_of(std::vector<double> const& numbers) {
    std::vector<std::uint64_t> bits;
    for (double const number : numbers) {
        bits.push_back(std::bit_cast<std::uint64_t>(number));
    }
    return bits;
}

} // namespace zero::test
