#pragma once

#include <algorithm>
#include <cstddef>

namespace bench {

/// The last micro-step of a step from its backward pass on, and the step: every unit's gradients are leased, written if wished, and ready. `visit(unit)` comes before each.
template <class Engine, class Visit>
void backward_and_step(Engine& engine, bool writes, Visit const& visit) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        visit(unit);
        auto const gradients = engine.gradients(unit, {}, false);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            if (writes) {
                std::ranges::fill(gradients[parameter], 0.5F);
            }
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    (void)engine.step(1e-4).report();
}

} // namespace bench
