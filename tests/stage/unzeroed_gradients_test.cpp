#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/stage/zero_stage.hpp>

#include <atomic>
#include <vector>

// A backward pass that writes every element itself asks for uninitialised gradients. Leases are
// reused, so the values of another unit or step must never leak into a gradient.

namespace zero::test::unzeroed_gradients_test {

namespace {

constexpr int world = 3;
constexpr std::size_t silent_unit = 2;

/// A backend whose communication queue does not clear ranges of 129 or more elements: the size of
/// the only trainable parameter of `silent_unit`, which padding may follow.
struct Forgetful : HostBackend {
    inline static std::atomic<bool> forgets = false;

    template <class T>
    static void fill(Queue queue, T* out, std::size_t elements, T value) {
        if (elements < 129 || !forgets || queue == default_compute_queue()) {
            HostBackend::fill(queue, out, elements, value);
        }
    }
};

/// Runs two steps of all units, then one in which `silent_unit` gets no gradient and either reports
/// that or does not.
template <class Stage>
std::vector<std::vector<std::uint32_t>> train(bool is_zeroed, bool silent_unit_reports, bool poison,
                                              ReductionSchedule schedule, bool forgets = false) {
    return on_ranks<std::vector<std::uint32_t>, typename Stage::Communicator>(
        world, [&](typename Stage::Communicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            Stage engine(communicator, registration<float>(toy_specs()),
                         {.poison = poison, .reduction = {.schedule = schedule}});
            (void)run_step(engine, rank, 0, 2);
            (void)run_step(engine, rank, 1, 2);
            Forgetful::forgets = forgets;
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                std::vector<bool> is_written(engine.layout().parameters().size(), false);
                for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                    if (unit != silent_unit) {
                        auto const gradients = engine.gradients(unit, {}, is_zeroed);
                        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                            for (std::size_t i = 0; i < gradients[parameter].size(); ++i) {
                                float const before = is_zeroed || is_written[parameter]
                                                         ? gradients[parameter][i]
                                                         : 0.0F;
                                gradients[parameter][i] =
                                    before + noise(7 + rank + unit, parameter, i, micro_step);
                            }
                            is_written[parameter] = true;
                        }
                    }
                    if (unit != silent_unit || silent_unit_reports) {
                        engine.gradients_ready(unit);
                    }
                }
            }
            (void)engine.step(0.01);
            return snapshot(engine);
        });
}

} // namespace

TEST_CASE("Gradients that the backward pass overwrites give the same bits as gradients that it "
          "adds to zeros") {
    in_every_stage([]<int N>() {
        for (auto const schedule :
             {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
            auto const expected = train<ZeroStage<N>>(true, true, false, schedule);
            for (bool const reports : {false, true}) {
                for (bool const poison : {false, true}) {
                    INFO("the silent unit reports: " << reports << ", poison: " << poison);
                    CHECK((train<ZeroStage<N>>(false, reports, poison, schedule) == expected));
                }
            }
        }
    });
}

TEST_CASE(
    "A silent unit whose gradient is not cleared is noticed") { // the control of the test above
    using Stage = ZeroStage<2, Loopback<Forgetful>>;
    auto const expected = train<Stage>(false, true, false, ReductionSchedule::every_micro_step);
    CHECK(
        (train<Stage>(false, true, false, ReductionSchedule::every_micro_step, true) != expected));
}

} // namespace zero::test::unzeroed_gradients_test
