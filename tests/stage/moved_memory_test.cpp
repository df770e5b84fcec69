#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::moved_memory_test {

namespace {

using Stage = ZeroStage<1, Sgd>;

/// Two tensors of a framework, each with memory for its gradient.
struct Model {
    std::vector<float> weight = std::vector<float>(6, 1.0F), bias = std::vector<float>(3, 1.0F);
    std::vector<float> weight_gradient = std::vector<float>(6),
                       bias_gradient = std::vector<float>(3);

    [[nodiscard]] std::vector<Stage::Registration> registrations() {
        return {{.name = "weight",
                 .data = weight.data(),
                 .elements = weight.size(),
                 .gradient = weight_gradient.data()},
                {.name = "bias",
                 .data = bias.data(),
                 .elements = bias.size(),
                 .gradient = bias_gradient.data()}};
    }

    [[nodiscard]] CurrentMemory memory(std::size_t index) const {
        return index == 0 ? CurrentMemory{weight.data(), weight_gradient.data(), weight.size()}
                          : CurrentMemory{bias.data(), bias_gradient.data(), bias.size()};
    }
};

template <class Engine>
void train(Engine& engine) {
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    engine.begin_gradients(0, GradientWrites::overwritten);
    engine.gradients_ready(0);
    engine.end_micro_step();
    (void)engine.step(0.1).report();
}

/// Moves memory by `change(model)`, and returns how the check ends.
template <class Change>
Outcome checked_after(Change const& change) {
    return on_ranks<Outcome>(1, [&](LoopbackCommunicator& communicator) {
        Model model;
        Stage engine(communicator, model.registrations(), {.storage = Storage::scattered});
        engine.check_memory(model.registrations());
        change(model);
        return outcome_of([&] { engine.check_memory(model.registrations()); });
    })[0];
}

} // namespace

TEST_CASE("Memory that moved since its registration is refused with its parameter") {
    std::vector<float> dropped; // frees nothing while an engine knows the address
    auto const gradient = checked_after([&](Model& model) {
        dropped = std::move(model.bias_gradient);
        model.bias_gradient.clear();
    });
    CHECK(gradient.type == "InvalidArgument");
    CHECK_THAT(gradient.message,
               contains_text("the memory for the gradient of parameter 'bias' was registered at 0x")
                   && contains_text("and is now null")
                   && contains_text("clear gradients instead of dropping them"));
    auto const values = checked_after([&](Model& model) {
        dropped = std::move(model.weight);
        model.weight.assign(6, 2.0F);
    });
    CHECK_THAT(values.message,
               contains_text("the memory for the values of parameter 'weight' was registered at 0x")
                   && contains_text("and is now at 0x") && contains_text("(rank 0)"));
    auto const grown = checked_after([&](Model& model) {
        dropped = std::move(model.bias);
        model.bias.assign(4, 1.0F);
    });
    CHECK_THAT(grown.message,
               contains_text("parameter 'bias' was registered with 3 elements and now has 4"));
    CHECK(checked_after([](Model&) {}) == Outcome{}); // values may change, addresses not
}

TEST_CASE("Registrations that are not those of the engine are refused") {
    auto const outcomes =
        on_ranks<std::vector<Outcome>>(1, [&](LoopbackCommunicator& communicator) {
            Model model;
            Stage engine(communicator, model.registrations(), {.storage = Storage::scattered});
            auto swapped = model.registrations();
            std::swap(swapped[0], swapped[1]);
            auto fewer = model.registrations();
            fewer.pop_back();
            return std::vector<Outcome>{outcome_of([&] { engine.check_memory(swapped); }),
                                        outcome_of([&] { engine.check_memory(fewer); })};
        })[0];
    CHECK_THAT(outcomes[0].message,
               contains_text("parameter number 0 was registered as 'weight' and is now 'bias'"));
    CHECK_THAT(outcomes[1].message,
               contains_text("2 parameters were registered, and 1 are to be compared"));
    auto const added = on_ranks<Outcome>(1, [&](LoopbackCommunicator& communicator) {
        std::vector<float> gradient(3);
        std::vector<Stage::Registration> registrations{{.name = "w", .elements = 3}};
        Stage engine(communicator, registrations);
        registrations[0].gradient = gradient.data();
        return outcome_of([&] { engine.check_memory(registrations); });
    })[0];
    CHECK_THAT(added.message,
               contains_text("parameter 'w' was registered without 'gradient' and now has memory"));
}

TEST_CASE("An engine that asks for the current memory refuses to begin a step with another") {
    auto const outcomes =
        on_ranks<std::vector<Outcome>>(2, [&](LoopbackCommunicator& communicator) {
            Model model;
            Stage engine(communicator, model.registrations(),
                         {.storage = Storage::scattered, .current_memory = [&](std::size_t index) {
                              return model.memory(index);
                          }});
            train(engine);
            std::vector<float> const dropped = std::move(model.weight_gradient);
            model.weight_gradient.assign(6, 0.0F);
            Outcome const refused = outcome_of([&] { engine.begin_step(); });
            model.weight_gradient = std::vector<float>(); // as after dropping all gradients
            Outcome const null = outcome_of([&] { engine.begin_step(); });
            return std::vector<Outcome>{refused, null, outcome_of([&] { engine.cancel_step(); })};
        });
    for (auto const& rank : outcomes) {
        CHECK(rank[0].type == "InvalidArgument");
        CHECK_THAT(rank[0].message,
                   contains_text("the memory for the gradient of parameter 'weight'"));
        CHECK_THAT(rank[1].message, contains_text("and is now null"));
        CHECK(rank[2].type == "OutOfOrder"); // no step began
    }
}

} // namespace zero::test::moved_memory_test
