#pragma once

#include <cstddef>

namespace bench {

/// Runs the backward pass of the last micro-step, and the step. Leases the gradients of every unit
/// unchanged (filled_leases.hpp) and reports them ready. Calls `visit(unit)` before each.
template <class Engine, class Visit>
void backward_and_step(Engine& engine, Visit const& visit) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        visit(unit);
        auto const gradients = engine.gradients(unit, {}, false);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            (void)gradients[parameter]; // only memory whose address was taken counts as written
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    (void)engine.step(1e-4).report();
}

} // namespace bench
