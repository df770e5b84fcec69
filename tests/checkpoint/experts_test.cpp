// Experts that were saved on 4 ranks load into 2 and into 1, by name, and training goes on with the
// bits of a run that was not stopped.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/load_parts.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/comm/experts.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace zero::test::experts_load_test {

namespace {

using Ranks = Groups<LoopbackCommunicator, Experts>;

constexpr int world = 4;
constexpr std::size_t experts = 8, elements = 70;

struct Seen {
    std::vector<double> norms;
    std::vector<std::vector<float>> values{experts}; ///< of the experts that the rank holds
    std::uint64_t steps = 0;
    std::string error;
};

std::vector<std::filesystem::path> parts_in(std::filesystem::path const& folder,
                                            std::size_t parts) {
    std::vector<std::filesystem::path> all;
    for (std::size_t part = 0; part < parts; ++part) {
        all.push_back(folder / ("part" + std::to_string(part)));
    }
    return all;
}

struct Run {
    std::size_t ranks_with_experts = 1; ///< E
    std::size_t begin = 0, end = 0;     ///< steps
    std::filesystem::path save{};
    std::vector<std::filesystem::path> load{}; ///< parts
    std::string name = "kept";
};

template <int N>
Seen train(LoopbackCommunicator& everyone, Run const& run) {
    std::size_t const parts = run.ranks_with_experts;
    Ranks ranks(everyone, {.experts = parts});
    auto const part = static_cast<std::size_t>(ranks.model().rank());
    std::size_t const count = experts / parts;
    using Zero = ZeroStage<N, Parameters<bfloat16>, DynamicLossScaler, Ranks>;
    std::vector<typename Zero::Registration> parameters(count);
    for (std::size_t i = 0; i < count; ++i) {
        parameters[i].name = "experts." + std::to_string(part * count + i);
        parameters[i].elements = elements;
        parameters[i].units = {i};
    }
    Zero engine(ranks, parameters,
                {.gradient_clipping = 20.0F,
                 .reduction = {.schedule = ReductionSchedule::every_micro_step}});
    Seen seen;
    if (!run.load.empty()) {
        Outcome const loaded =
            outcome_of([&] { load_parts(engine, run.load, {.name = run.name}); });
        if (loaded.type != "returned") {
            seen.error = loaded.type + ": " + loaded.message;
            return seen;
        }
    }
    auto const rank = static_cast<std::size_t>(everyone.rank());
    for (std::size_t step = run.begin; step < run.end; ++step) {
        engine.begin_step();
        engine.begin_micro_step();
        for (std::size_t i = count; i-- > 0;) {
            auto const weights = engine.acquire(i);
            auto const gradients = engine.gradients(i);
            for (std::size_t at = 0; at < elements; ++at) {
                float sum = 0.0F; // of integers, over the tokens of the ranks of this copy
                for (std::size_t peer = rank - part; peer < rank - part + parts; ++peer) {
                    sum += std::floor(8.0F * noise(peer, part * count + i, at, step));
                }
                gradients[i][at] = from_float<bfloat16>(sum * float{engine.loss_scale()});
            }
            engine.gradients_ready(i);
        }
        engine.end_micro_step();
        seen.norms.push_back(engine.step(0.125).report().gradient_norm);
    }
    if (!run.save.empty()) {
        save_checkpoint(engine, run.save / ("part" + std::to_string(part)), {.name = run.name});
    }
    auto const values = full_parameters(engine);
    for (std::size_t i = 0; i < count; ++i) {
        seen.values[part * count + i] = values[i];
    }
    seen.steps = engine.step_count();
    return seen;
}

template <int N>
std::vector<Seen> train_all(Run const& run) {
    return on_ranks<Seen>(world,
                          [&](LoopbackCommunicator& everyone) { return train<N>(everyone, run); });
}

} // namespace

TEST_CASE("Experts that were saved on 4 ranks load into 2, 1 and 4 with the bits of a run that was "
          "not stopped") {
    TemporaryFolder const folder;
    auto const whole = train_all<2>({.ranks_with_experts = 1, .end = 6})[0];
    (void)train_all<2>({.ranks_with_experts = 4, .end = 3, .save = folder.path()});
    for (std::size_t const parts : {1U, 2U, 4U}) {
        CAPTURE(parts);
        Run run{.ranks_with_experts = parts, .begin = 3, .end = 6};
        run.load = parts_in(folder.path(), 4);
        for (auto const& found : {train_all<2>(run), train_all<3>(run)}) {
            for (Seen const& rank : found) {
                CHECK(rank.error.empty());
                CHECK(rank.steps == 6);
                CHECK(rank.norms
                      == std::vector<double>(whole.norms.begin() + 3, whole.norms.end()));
                for (std::size_t expert = 0; expert < experts; ++expert) {
                    CHECK((rank.values[expert].empty()
                           || rank.values[expert] == whole.values[expert]));
                }
            }
        }
    }
    Run control{.ranks_with_experts = 2, .begin = 3, .end = 6}; // without the states
    CHECK(train_all<2>(control)[0].values[0] != whole.values[0]);
}

TEST_CASE("Parts that lack an expert, come twice, or are of other steps are refused") {
    TemporaryFolder const folder;
    (void)train_all<2>({.ranks_with_experts = 2, .end = 2, .save = folder.path()});
    auto const refusal = [&](std::vector<std::filesystem::path> const& parts,
                             std::string const& name = "kept") {
        Run run{.ranks_with_experts = 4}; // no steps: other model ranks may have loaded
        run.load = parts;
        run.name = name;
        auto const seen = train_all<2>(run);
        return seen[0].error + seen[1].error + seen[2].error + seen[3].error;
    };
    auto const all = parts_in(folder.path(), 2);
    CHECK(refusal(all).empty());
    CHECK(refusal({all[0]}).find("the checkpoint has no parameter 'experts.4'")
          != std::string::npos);
    CHECK(refusal({all[0], all[1], all[0]}).find("and in a part before it; give each part once")
          != std::string::npos);
    CHECK(refusal(all, "").find("InvalidArgument: zero: load_parts() needs LoadOptions::name")
          != std::string::npos);
    TemporaryFolder const other;
    (void)train_all<2>({.ranks_with_experts = 2, .end = 3, .save = other.path()});
    CHECK(refusal({all[0], parts_in(other.path(), 2)[1]})
              .find("than the parts before it; load checkpoints of the same step")
          != std::string::npos);
}

} // namespace zero::test::experts_load_test
