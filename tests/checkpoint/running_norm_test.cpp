// The running norm of `skip_above_norm` is part of a checkpoint.

#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::running_norm_test {

namespace {

constexpr std::size_t micro_batches = 6; ///< of all ranks in a step
constexpr std::uint64_t steps = 9;
constexpr float sizes[steps] = {1, 2, 60, 1, 300, 2, 1, 80, 1};

/// Limits and counts of each step, and all parameters at the end.
struct Seen {
    std::vector<float> limits;
    std::vector<std::uint32_t> too_large;
    std::vector<std::vector<float>> parameters;
    friend bool operator==(Seen const&, Seen const&) = default;
};

/// Trains the steps [begin, end). Gradients are whole numbers of micro-batches, so that their sums
/// do not depend on the number of ranks.
template <class Engine>
Seen train(Engine& engine, LoopbackCommunicator const& communicator, std::uint64_t begin,
           std::uint64_t end) {
    Seen seen;
    for (std::uint64_t step = begin; step < end; ++step) {
        engine.begin_step();
        std::size_t const share = micro_batches / static_cast<std::size_t>(communicator.size());
        for (auto const micro_step : engine.micro_steps(share)) {
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    std::size_t i = 0;
                    for (float& gradient : gradients[parameter]) {
                        gradient += std::floor(8.0F
                                               * noise(7 + engine.micro_batch(micro_step),
                                                       parameter, i++, step * 8 + unit))
                                    * sizes[step];
                    }
                }
                engine.gradients_ready(unit);
            }
        }
        auto const report = engine.step(0.01).report();
        seen.limits.push_back(report.norm_limit);
        seen.too_large.push_back(report.too_large);
    }
    seen.parameters = full_parameters(engine);
    return seen;
}

template <class Stage>
typename Stage::Options options(NormLimit const& limit) {
    return {.skip_above_norm = limit};
}

NormLimit const relative{.factor = 4.0F, .window = 3};

/// Trains steps [0, end) on two ranks in stage 2, and saves.
Seen save_after(std::uint64_t end, std::string const& folder, NormLimit const& limit,
                bool in_background = false) {
    return on_ranks<Seen>(2, [&](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<2>;
        Stage engine(communicator, registration<float>(toy_specs()), options<Stage>(limit));
        Seen const seen = train(engine, communicator, 0, end);
        if (in_background) {
            CheckpointSaver saver(engine, folder);
            saver.start();
            (void)train(engine, communicator, end, end + 1); // is not in the checkpoint
            saver.wait();
        } else if (end != steps) {
            save_checkpoint(engine, folder);
        }
        return seen;
    })[0];
}

struct Resumed {
    Seen seen;
    std::vector<std::string> differences;
};

template <int N>
Resumed resume_at(std::uint64_t begin, int world, std::string const& folder,
                  NormLimit const& limit) {
    return on_ranks<Resumed>(world, [&](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<N>;
        Stage engine(communicator, registration<float>(toy_specs()), options<Stage>(limit));
        auto const report = load_checkpoint(engine, folder);
        return Resumed{train(engine, communicator, begin, steps), report.differences};
    })[0];
}

/// The part of a run that begins with a step.
Seen from(Seen run, std::uint64_t begin) {
    run.limits.erase(run.limits.begin(), run.limits.begin() + static_cast<std::ptrdiff_t>(begin));
    run.too_large.erase(run.too_large.begin(),
                        run.too_large.begin() + static_cast<std::ptrdiff_t>(begin));
    return run;
}

} // namespace

TEST_CASE("A run resumes with its running norm in another stage and on another number of ranks") {
    Seen const whole = save_after(steps, "", relative);
    CHECK(whole.too_large == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 2, 2});
    for (std::uint64_t const begin : {1U, 2U, 4U, 5U, 7U}) { // two before the window is full
        CAPTURE(begin);
        TemporaryFolder const folder;
        (void)save_after(begin, folder.path(), relative, begin == 5);
        auto const check = [&](Resumed const& resumed) {
            CHECK(resumed.seen == from(whole, begin));
            CHECK(resumed.differences.empty());
        };
        check(resume_at<0>(begin, 1, folder.path(), relative));
        check(resume_at<1>(begin, 2, folder.path(), relative));
        check(resume_at<3>(begin, 3, folder.path(), relative));
    }
}

TEST_CASE("A checkpoint without a running norm is loaded, and the report says so") {
    TemporaryFolder const folder;
    (void)save_after(3, folder.path(), {});
    Resumed const resumed = resume_at<2>(3, 2, folder.path(), relative);
    CHECK(resumed.differences
          == std::vector<std::string>{"the running norm of skip_above_norm stays that of the "
                                      "engine, because the checkpoint has none"});
    // The window begins with the first step after the load, and is full after three.
    CHECK(std::isinf(resumed.seen.limits[2]));
    CHECK(std::isfinite(resumed.seen.limits[3]));
    CHECK(resume_at<2>(3, 2, folder.path(), {}).differences.empty());
    CHECK(resume_at<2>(3, 2, folder.path(), {.limit = 1e6F}).differences.empty());
}

TEST_CASE("A running norm goes on in another window, and is ignored without the option") {
    TemporaryFolder const folder;
    (void)save_after(4, folder.path(), relative);
    Seen const shorter = resume_at<2>(4, 2, folder.path(), {.factor = 4.0F, .window = 1}).seen;
    CHECK(shorter.limits[0] == save_after(steps, "", relative).limits[4]);
    CHECK(shorter.limits[2] != save_after(steps, "", relative).limits[6]);
    // The checkpoint has the norms of three steps, of the five that are needed now.
    Seen const longer = resume_at<2>(4, 2, folder.path(), {.factor = 4.0F, .window = 5}).seen;
    CHECK(std::isinf(longer.limits[1]));
    CHECK(std::isfinite(longer.limits[2]));
    Resumed const without = resume_at<2>(4, 2, folder.path(), {});
    CHECK(without.differences.empty());
    CHECK(std::isinf(without.seen.limits.back()));
}

TEST_CASE("A running norm that no run can have is refused") {
    TemporaryFolder const folder;
    (void)save_after(4, folder.path(), relative);
    std::filesystem::path const checkpoint = folder / "step-00000004";
    Manifest manifest = Manifest::read(checkpoint);
    CHECK(manifest.scalars.counts.at("running_norm_steps") == 3);
    CHECK(manifest.scalars.numbers.at("running_norm") > 0.0);
    manifest.scalars.numbers.at("running_norm") = -1.0;
    set_content(checkpoint / "manifest.json", manifest.to_json());
    Outcome const outcome = outcome_of([&] { (void)resume_at<2>(4, 1, folder.path(), relative); });
    CHECK(outcome.type == "InvalidArgument");
    CHECK_THAT(outcome.message, contains_text("the running norm -1 is not one that steps have"));
}

} // namespace zero::test::running_norm_test
