#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Settings of groups follow the parameters, whatever the order in which groups are listed.

namespace zero::test::groups_test {

namespace {

using Stage = ZeroStage<2>;
using Values = std::vector<std::vector<float>>;

/// The group of each parameter, and the decay and the factor of each group.
struct Groups {
    std::array<std::size_t, 3> of; ///< of weight, bias and a frozen table
    std::vector<double> decay;
    std::vector<double> factor{};
};

std::unique_ptr<Stage> engine_of(LoopbackCommunicator& communicator, Groups const& groups) {
    std::vector<ParameterSpec> specs{{"weight", 130, {0}, groups.of[0], true},
                                     {"bias", 70, {1}, groups.of[1], true},
                                     {"table", 9, {1}, groups.of[2], false}};
    Stage::Options options;
    for (double const decay : groups.decay) {
        options.groups.emplace_back();
        options.groups.back().optimizer.weight_decay = decay;
    }
    auto engine = std::make_unique<Stage>(communicator, registration<float>(specs), options);
    for (std::size_t group = 0; group < groups.factor.size(); ++group) {
        engine->set_learning_rate(group, groups.factor[group]);
    }
    return engine;
}

struct Resumed {
    Outcome outcome;
    std::vector<std::string> differences;
    std::vector<std::string> replaced;
    std::vector<double> decay; ///< by group, after loading
    std::vector<double> factor;
    Values values; ///< after three steps, of which two were trained before
};

/// Trains two steps and saves, and trains the third one in an engine with other groups.
Resumed resume(Groups const& before, Groups const& after, LoadOptions const& load = {}) {
    TemporaryFolder const folder;
    return on_ranks<Resumed>(2, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        {
            auto const engine = engine_of(communicator, before);
            run_step(*engine, rank, 0);
            run_step(*engine, rank, 1);
            save_checkpoint(*engine, folder.path());
        }
        Resumed own;
        auto const engine = engine_of(communicator, after);
        own.outcome = outcome_of([&] {
            auto const report = load_checkpoint(*engine, folder.path(), load);
            own.differences = report.differences;
            own.replaced = report.replaced_settings;
        });
        for (std::size_t group = 0; group < after.decay.size(); ++group) {
            own.decay.push_back(engine->hyper_parameters(group).weight_decay);
            own.factor.push_back(engine->learning_rate_factor(group));
        }
        run_step(*engine, rank, 2);
        own.values = full_parameters(*engine);
        return own;
    })[0];
}

Values straight(Groups const& groups) {
    return resume(groups, groups).values;
}

} // namespace

TEST_CASE("Groups that are listed in another order at resume keep their settings") {
    Groups const before{{0, 1, 1}, {0.5, 0.0}, {1.0, 0.25}};
    auto const same = resume(before, before);
    auto const reordered = resume(before, {{1, 0, 0}, {0.0, 0.5}});
    CHECK(reordered.outcome.message.empty());
    CHECK(reordered.differences.empty());
    CHECK(reordered.decay == std::vector<double>{0.0, 0.5});
    CHECK(reordered.factor == std::vector<double>{0.25, 1.0});
    CHECK(reordered.values == same.values);
    // Control: with exchanged settings the model would be another.
    auto const exchanged = resume(before, {{1, 0, 0}, {0.5, 0.0}}, {.settings = false});
    CHECK(exchanged.values != same.values);
}

TEST_CASE("A group of frozen parameters alone keeps its settings if their group was divided") {
    Groups const before{{0, 1, 1}, {0.5, 0.0}, {1.0, 0.25}};
    auto const more = resume(before, {{2, 1, 0}, {0.125, 0.0, 0.5}, {0.5, 1.0, 1.0}});
    CHECK(more.outcome.message.empty());
    CHECK(more.decay == std::vector<double>{0.125, 0.0, 0.5});
    CHECK(more.factor == std::vector<double>{0.5, 0.25, 1.0});
    CHECK(more.values == resume(before, before).values);
    REQUIRE(more.differences.size() == 1);
    INFO(more.differences[0]);
    CHECK(more.differences[0].find("group 0 of frozen parameters keeps the settings of the engine: "
                                   "'table' was in group 1 of the checkpoint")
          != std::string::npos);
    CHECK(more.differences[0].find("learning_rate_factor 0.5 and 0.25, weight_decay 0.125 and 0")
          != std::string::npos);
    // Controls: a group that is not shared is taken, as is one of equal settings.
    Groups const alone{{0, 0, 1}, {0.5, 0.0}};
    auto const reordered = resume(alone, {{1, 1, 0}, {0.125, 0.5}});
    CHECK(reordered.differences.empty());
    CHECK(reordered.decay == std::vector<double>{0.0, 0.5});
    auto const equal = resume(before, {{0, 1, 2}, {0.5, 0.125, 0.125}});
    CHECK(equal.differences.empty());
    CHECK(equal.decay == std::vector<double>{0.5, 0.0, 0.0});
}

TEST_CASE("Settings of the program that a checkpoint replaces are reported, all of them") {
    Groups const before{{0, 1, 1}, {0.5, 0.0}};
    Groups const changed{{0, 1, 1}, {0.125, 0.0}, {0.5, 1.0}};
    auto const resumed = resume(before, changed);
    CHECK(resumed.outcome.message.empty());
    CHECK(resumed.differences.empty());
    CHECK(resumed.decay == std::vector<double>{0.5, 0.0});
    CHECK(resumed.replaced
          == std::vector<std::string>{"group 0: learning_rate_factor 0.5 became 1, weight_decay "
                                      "0.125 became 0.5 of group 0 of the checkpoint"});
    CHECK(resume(before, before).replaced.empty());
    CHECK(resume(before, changed, {.settings = false}).replaced.empty());
}

TEST_CASE("A group of new parameters keeps its settings, whichever number it has") {
    TemporaryFolder const folder;
    auto const seen = on_ranks<std::vector<double>>(2, [&](LoopbackCommunicator& communicator) {
        auto const old = engine_of(communicator, {{0, 1, 1}, {0.5, 0.0}});
        save_checkpoint(*old, folder.path());
        std::vector<ParameterSpec> const specs{{"head", 50, {0}, 0, true},
                                               {"weight", 130, {1}, 1, true}};
        Stage::Options options;
        options.groups.resize(2);
        options.groups[0].optimizer.weight_decay = 0.125;
        Stage engine(communicator, registration<float>(specs), options);
        load_checkpoint(engine, folder.path(), {.may_differ = true});
        return std::vector<double>{engine.hyper_parameters(0).weight_decay,
                                   engine.hyper_parameters(1).weight_decay};
    });
    CHECK(seen[0] == std::vector<double>{0.125, 0.5});
}

TEST_CASE("Two groups that become one are listed unless their settings are equal") {
    Groups const before{{0, 1, 1}, {0.5, 0.0}};
    Groups const one{{0, 0, 0}, {0.25}};
    auto const refused = resume(before, one);
    INFO(refused.outcome.message);
    CHECK(refused.outcome.message.find(
              "group 0 has parameter 'weight' of group 0 of the checkpoint and 'bias' of group 1, "
              "which differ: weight_decay 0.5 and 0")
          != std::string::npos);
    CHECK(refused.outcome.message.find("LoadOptions::may_regroup") != std::string::npos);
    CHECK(refused.decay == std::vector<double>{0.25});
    CHECK_FALSE(resume(before, one, {.may_thaw = true}).outcome.message.empty());
    CHECK(resume(before, one, {.may_differ = true}).outcome.message.empty());
    auto const accepted = resume(before, one, {.may_regroup = true});
    CHECK(accepted.outcome.message.empty());
    REQUIRE(accepted.differences.size() == 1);
    CHECK(accepted.differences[0].find("keeps the settings of the engine") != std::string::npos);
    CHECK(accepted.decay == std::vector<double>{0.25});
    CHECK(resume(before, one, {.settings = false}).differences.empty());
    // Every setting in which they differ is named.
    auto const both = resume({{0, 1, 1}, {0.5, 0.0}, {1.0, 0.25}}, one);
    CHECK(both.outcome.message.find("learning_rate_factor 1 and 0.25, weight_decay 0.5 and 0;")
          != std::string::npos);

    auto const equal = resume({{0, 1, 1}, {0.5, 0.5}}, one);
    CHECK(equal.outcome.message.empty());
    CHECK(equal.decay == std::vector<double>{0.5});
    CHECK(equal.values == straight({{0, 0, 0}, {0.5}}));
}

TEST_CASE("One group that is divided is listed unless the new groups have equal settings") {
    Groups const before{{0, 0, 0}, {0.5}};
    auto const refused = resume(before, {{0, 1, 1}, {0.5, 0.0}});
    INFO(refused.outcome.message);
    CHECK(refused.outcome.message.find(
              "groups 0 with parameter 'weight' and 1 with 'bias' differ: weight_decay 0.5 and 0; "
              "both were group 0 of the checkpoint")
          != std::string::npos);
    CHECK(refused.decay == std::vector<double>{0.5, 0.0});
    auto const accepted = resume(before, {{0, 1, 1}, {0.5, 0.0}}, {.may_regroup = true});
    CHECK(accepted.differences.size() == 1);
    CHECK(accepted.decay == std::vector<double>{0.5, 0.5});
    auto const equal = resume(before, {{0, 1, 1}, {0.25, 0.25}});
    CHECK(equal.outcome.message.empty());
    CHECK(equal.decay == std::vector<double>{0.5, 0.5});
    CHECK(equal.values == straight(before));
}

} // namespace zero::test::groups_test
