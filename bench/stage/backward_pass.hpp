#pragma once

#include <cstddef>

namespace bench {

/// The last micro-step of a step from its backward pass on, and the step: every unit's gradients
/// are leased as they are (filled_leases.hpp), and ready. `visit(unit)` comes before each.
template <class Engine, class Visit>
void backward_and_step(Engine& engine, Visit const& visit) {
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        visit(unit);
        (void)engine.gradients(unit, {}, false);
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    (void)engine.step(1e-4).report();
}

} // namespace bench
