#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// A conditional model: each rank uses some units in some steps only.

namespace zero::test::skipped_units_test {

namespace {

enum class Unused { skipped, left_out };

/// Units 1 and 3 are used by every second rank, in turn; the others by all.
bool uses(std::size_t unit, std::uint64_t rank, std::uint64_t step) {
    return unit % 2 == 0 || (rank + step + unit / 2) % 2 == 0;
}

template <class Engine>
void run_conditional_step(Engine& engine, std::uint64_t rank, std::uint64_t step, Unused unused) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(1)) {
        for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
            if (uses(unit, rank, step)) {
                auto const weights = engine.acquire(unit);
            } else if (unused == Unused::skipped) {
                engine.skip(unit);
            }
        }
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            if (!uses(unit, rank, step)) {
                if (unused == Unused::skipped) {
                    engine.skip(unit);
                    engine.gradients_ready(unit);
                }
                continue;
            }
            auto const weights = engine.acquire(unit);
            auto const gradients = engine.gradients(unit);
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                auto const gradient = gradients[parameter];
                for (std::size_t i = 0; i < gradient.size(); ++i) {
                    gradient[i] += noise(rank * 8 + unit, parameter, i, step);
                }
            }
            engine.gradients_ready(unit);
        }
    }
    (void)engine.step(0.01);
}

template <int N>
Trained conditional(Unused unused) {
    return Trained::joined(on_ranks<Trained>(3, [&](LoopbackCommunicator& communicator) {
        ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        for (std::uint64_t step = 0; step < 4; ++step) {
            run_conditional_step(engine, rank, step, unused);
        }
        Trained result;
        result.resize(toy_specs());
        result.parameters = full_parameters(engine);
        engine.for_each_owned_slice([&](auto const& slice) { result.add(slice); });
        return result;
    }));
}

} // namespace

TEST_CASE("Units that some ranks skip train to the same bits in every stage") {
    auto const expected = conditional<0>(Unused::left_out); // nothing is gathered there
    CHECK((conditional<0>(Unused::skipped) == expected));
    CHECK((conditional<1>(Unused::skipped) == expected));
    CHECK((conditional<2>(Unused::skipped) == expected));
    CHECK((conditional<3>(Unused::skipped) == expected));
}

TEST_CASE("A unit that one rank of stage 3 leaves out is named on every rank") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<3> engine(communicator, registration<float>(toy_specs()));
        run_conditional_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0,
                             Unused::left_out);
    });
    for (Outcome const& outcome : outcomes.ranks) {
        CHECK(outcome.type == "CollectiveMismatch");
        // unit 1 of rank 0, and unit 2, with which rank 1 continues
        CHECK_THAT(outcome.message, contains_text("'first.bias'"));
        CHECK_THAT(outcome.message, contains_text("'second.weight'"));
        CHECK_THAT(outcome.message,
                   contains_text("for the same units (where a rank does not use one, skip(unit) in "
                                 "the forward pass, and skip(unit) and gradients_ready(unit) in "
                                 "the backward pass)"));
    }
}

} // namespace zero::test::skipped_units_test
