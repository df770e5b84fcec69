#pragma once

#include <zero/core/convert.hpp>

#include <algorithm>
#include <cstddef>
#include <ranges>

namespace bench {

/// The value of every gradient. A reduction in place, as in stage 0, doubles it in each step of two
/// ranks. Squares of smaller numbers could become subnormal, which takes ten times as long.
inline constexpr float gradient_value = 0x1p-8F;

/// Runs the backward pass of the last micro-step, and the step. Leases the gradients of every unit
/// unchanged and reports them ready; in the first step, with `are_written`, they are written. Calls
/// `visit(unit)` before each.
template <class Engine, class Visit>
void backward_and_step(Engine& engine, Visit const& visit, bool are_written) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        visit(unit);
        auto const gradients = engine.gradients(unit, {}, false);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const values = gradients[parameter]; // asking for memory counts as writing it
            if (are_written) {
                using G = std::ranges::range_value_t<decltype(values)>;
                std::ranges::fill(values, zero::from_float<G>(gradient_value));
            }
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    (void)engine.step(1e-4).report();
}

} // namespace bench
