#pragma once

// Constructs a stage and makes every call, as a program does. In a rejected stage none of this may
// add an error.

#include <zero/zero.hpp>

#include <type_traits>
#include <vector>

template <class Stage, class Communicator>
void train(Communicator& communicator) {
    std::vector<typename Stage::Registration> const parameters{{.name = "weight", .elements = 100}};
    Stage engine(communicator, parameters, {.gradient_clipping = 1.0F});
    engine.begin_step();
    float const scale = engine.loss_scale();
    for (auto const micro_step : engine.micro_steps(2)) {
        auto const weights = engine.acquire(0);
        auto const gradients = engine.gradients(0);
        auto const slope = static_cast<float>(weights[0][1]) * scale; // of 16 bits as well
        gradients[0][1] = zero::from_float<std::remove_cvref_t<decltype(gradients[0][1])>>(slope);
        engine.gradients_ready(0);
    }
    auto const ticket = engine.step(0.1);
    if (ticket.report().is_skipped || engine.step_count() != 1) {
        engine.parameters_changed();
    }
    engine.for_each_full_parameter([](std::size_t, auto values) { (void)values; });
    engine.for_each_owned_slice([](auto const& slice) { (void)slice.values; });
}
