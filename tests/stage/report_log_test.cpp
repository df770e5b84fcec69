#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/report_log.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

// Reports as lines of text and of JSON, and the callback for each step.

namespace zero::test::report_log_test {

namespace {

StepReport clipped() {
    StepReport report;
    report.serial = 12;
    report.step_count = 11;
    report.has_norm = true;
    report.gradient_norm = 1.5;
    report.clip_coefficient = 0.625F;
    report.loss_scale = 1024.0F;
    report.next_loss_scale = 1024.0F;
    return report;
}

/// Returns the reports that a log passes on in five steps, and how many of them `add` passed on.
struct Passed {
    std::vector<std::uint64_t> serials;
    std::size_t before_finish = 0;
    bool operator==(Passed const&) const = default;
};

Passed passed_on(std::size_t behind) {
    return on_ranks<Passed>(2, [&](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        Passed passed;
        ReportLog log(
            engine, [&](StepReport const& report) { passed.serials.push_back(report.serial); },
            behind);
        for (std::uint64_t step = 0; step < 5; ++step) {
            log.add(run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step));
        }
        passed.before_finish = passed.serials.size();
        log.finish();
        log.finish();
        return passed;
    })[1];
}

} // namespace

TEST_CASE("A log is eight steps behind unless it is told") {
    auto const passed = on_ranks<std::size_t>(1, [](auto& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        std::size_t count = 0;
        ReportLog log(engine, [&](StepReport const& /*report*/) { ++count; });
        for (std::uint64_t step = 0; step < 10; ++step) {
            log.add(run_step(engine, 0, step));
        }
        return count;
    });
    CHECK(passed[0] == 2);
}

TEST_CASE("A log that ends passes on what is left, up to a callback that throws") {
    auto const passed = on_ranks<std::vector<std::uint64_t>>(1, [](auto& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
        std::vector<std::uint64_t> serials;
        {
            ReportLog log(engine, [&](StepReport const& report) {
                if (report.serial == 3) {
                    throw std::runtime_error("the disk is full");
                }
                serials.push_back(report.serial);
            });
            for (std::uint64_t step = 0; step < 4; ++step) {
                log.add(run_step(engine, 0, step));
            }
        }
        return serials;
    });
    CHECK(passed[0] == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("A report is one line that says what happened to the step") {
    StepReport report = clipped();
    CHECK(to_string(report) == "step 12: norm 1.5, clipped by 0.625, loss scale 1024");
    report.clip_coefficient = 1.0F;
    CHECK(to_string(report) == "step 12: norm 1.5, loss scale 1024");
    report.is_skipped = report.is_too_large = true;
    report.norm_limit = 1.25F;
    CHECK(to_string(report) == "step 12 skipped: norm 1.5, above 1.25, loss scale 1024");
    report.non_finite_count = 3;
    report.first_non_finite = 812;
    report.next_loss_scale = 512.0F;
    CHECK(to_string(report)
          == "step 12 skipped: 3 elements are not finite, the first is 812, loss scale 1024, then "
             "512");
    report.has_gradients = false;
    CHECK(to_string(report) == "step 12 skipped: no rank has gradients, loss scale 1024, then 512");
    CHECK(to_string(StepReport{}) == "step 0: done, loss scale 1");
}

TEST_CASE("A report is one JSON object whose numbers read as they were, or null where JSON has no "
          "number") {
    StepReport report = clipped();
    report.gradient_norm = 0.1;
    report.group_norms = {0.1, std::numeric_limits<double>::infinity()};
    CHECK(to_json(report)
          == R"({"serial": 12, "step_count": 11, "is_skipped": false, "is_too_large": false, )"
             R"("too_large": 0, "skipped_in_a_row": 0, "has_gradients": true, "has_norm": true, )"
             R"("gradient_norm": 0.1, "clip_coefficient": 0.625, "norm_limit": null, )"
             R"("non_finite_count": 0, "first_non_finite": -1, "zero_gradients": 0, )"
             R"("loss_scale": 1024, "next_loss_scale": 1024, "group_norms": [0.1, null]})");
}

TEST_CASE("A log passes on every report once and in order, as far behind as it was told") {
    std::vector<std::uint64_t> const all{1, 2, 3, 4, 5};
    CHECK(passed_on(0) == Passed{all, 5});
    CHECK(passed_on(2) == Passed{all, 3});
    CHECK(passed_on(100) == Passed{all, 0});
}

TEST_CASE("A log may stay 15 steps behind for ever, because an engine keeps 16 reports") {
    auto const seen = on_ranks<std::size_t>(1, [&](LoopbackCommunicator& communicator) {
        ZeroStage<0> engine(communicator, registration<float>(toy_specs()));
        std::size_t reports = 0;
        ReportLog log(
            engine, [&](StepReport const&) { ++reports; }, 15);
        for (std::uint64_t step = 0; step < 40; ++step) {
            log.add(run_step(engine, 0, step));
        }
        return reports;
    });
    CHECK(seen[0] == 25);
}

} // namespace zero::test::report_log_test
