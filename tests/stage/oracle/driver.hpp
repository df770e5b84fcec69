#pragma once

// Runs configurations in all stages that accept them, and reports every difference from the oracle
// on the main thread.

#include "support/catch.hpp"

#include "generator.hpp"
#include "parts.hpp"
#include "trainer.hpp"

#include <zero/comm/grouped_communicator.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/run_ranks.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

namespace zero::test::oracle {

/// The configurations to run, from the environment variables ZERO_ORACLE_CONFIGURATIONS (their
/// number), ZERO_ORACLE_SEED and ZERO_ORACLE_ONLY (the index of a single one).
struct Plan {
    static constexpr std::size_t full = 600;

    std::uint64_t seed = 20240229;
    std::size_t configurations = full;
    std::optional<std::size_t> only;

    static Plan from_environment() {
        Plan plan;
        auto const read = [](char const* name) -> std::optional<std::uint64_t> {
            char const* const text = std::getenv(name);
            return text == nullptr || *text == '\0'
                       ? std::nullopt
                       : std::optional<std::uint64_t>(std::strtoull(text, nullptr, 10));
        };
        plan.seed = read("ZERO_ORACLE_SEED").value_or(plan.seed);
        plan.configurations = static_cast<std::size_t>(
            read("ZERO_ORACLE_CONFIGURATIONS").value_or(plan.configurations));
        if (auto const only = read("ZERO_ORACLE_ONLY")) {
            plan.only = static_cast<std::size_t>(*only);
        }
        return plan;
    }

    [[nodiscard]] bool includes(std::size_t index) const {
        return only ? *only == index : index < configurations;
    }
    [[nodiscard]] std::size_t end() const { return only ? *only + 1 : configurations; }
};

/// Checks the owners of each element: every rank in stage 0, exactly one rank in the other stages,
/// and no rank if the parameter is frozen.
inline void check_ownership(Run const& run,
                            std::vector<std::vector<std::vector<unsigned>>> const& owned_by_rank) {
    Configuration const& c = *run.configuration;
    for (std::size_t parameter = 0; parameter < c.shapes.size(); ++parameter) {
        for (std::size_t i = 0; i < c.shapes[parameter].elements; ++i) {
            unsigned owners = 0;
            for (auto const& owned : owned_by_rank) {
                owners += owned[parameter][i];
            }
            std::size_t const expected = !c.shapes[parameter].trainable ? 0
                                         : run.stage == 0               ? c.world
                                         : c.shard != 0                 ? c.world / c.shard
                                                                        : 1;
            if (owners != expected) {
                run.failures->add("stage " + std::to_string(run.stage) + ": element "
                                  + std::to_string(i) + " of parameter " + std::to_string(parameter)
                                  + " has " + std::to_string(owners) + " owners instead of "
                                  + std::to_string(expected));
                return;
            }
        }
    }
}

/// Runs one configuration with the engine that `make` constructs. Differences go to `run.failures`.
template <class Engine>
void run_engine(Run const& run, typename Trainer<Engine>::Make make) {
    using Communicator = typename Engine::Communicator;
    using Owned = std::vector<std::vector<unsigned>>;
    std::vector<Run> runs; // of the parts of the model
    std::vector<Part> const parts = parts_of(*run.configuration, *run.history);
    for (Part const& part : parts) {
        runs.push_back(run);
        runs.back().configuration = &part.configuration;
        runs.back().history = &part.history;
    }
    if (runs.empty()) {
        runs.push_back(run);
    }
    std::vector<std::vector<Owned>> owned(runs.size(),
                                          std::vector<Owned>(run.configuration->world));
    auto const body = [&](Communicator& communicator) {
        std::size_t part = 0;
        if constexpr (ModelParallelCommunicator<Communicator>) {
            part = static_cast<std::size_t>(communicator.model().rank());
        }
        Trainer<Engine> trainer(communicator, runs[part], make);
        trainer.train();
        owned[part][static_cast<std::size_t>(communicator.rank())] = trainer.owned();
    };
    try {
        auto const world = static_cast<int>(run.configuration->world);
        LoopbackOptions const options{.time_out = std::chrono::seconds(60)};
        if constexpr (requires { typename Communicator::Inner; }) {
            run_ranks<typename Communicator::Inner>(world, options,
                                                    [&](typename Communicator::Inner& inner) {
                                                        Communicator communicator(inner);
                                                        body(communicator);
                                                    });
        } else {
            if constexpr (ModelParallelCommunicator<Communicator>) {
                auto const of_copy = static_cast<int>(parts.size());
                run_ranks(world * of_copy, options, [&](LoopbackCommunicator& everyone) {
                    int const rank = everyone.rank();
                    auto data = everyone.split(rank % of_copy, rank);
                    auto model = everyone.split(rank / of_copy, rank);
                    if constexpr (GroupedCommunicator<Communicator>) {
                        Groups<LoopbackCommunicator, Hybrid> shards(
                            data, {.shard = run.configuration->shard});
                        Communicator ranks(shards, model);
                        run_rank(ranks, body);
                    } else {
                        Communicator ranks(data, model);
                        run_rank(ranks, body);
                    }
                });
            } else if constexpr (GroupedCommunicator<Communicator>
                                 && SecondaryCommunicator<Communicator>) {
                using Shards = Groups<LoopbackCommunicator, Hybrid>;
                run_ranks<Shards>(
                    world, options, {.shard = run.configuration->shard}, [&](Shards& shards) {
                        Communicator all(shards, {.secondary = run.configuration->secondary});
                        run_rank(all, body);
                    });
            } else if constexpr (SecondaryCommunicator<Communicator>) {
                run_ranks<Communicator>(world, options, {.secondary = run.configuration->secondary},
                                        body);
            } else if constexpr (GroupedCommunicator<Communicator>) {
                run_ranks<Communicator>(world, options, {.shard = run.configuration->shard}, body);
            } else {
                run_ranks<Communicator>(world, options, body);
            }
        }
        for (std::size_t part = 0; part < runs.size(); ++part) {
            check_ownership(runs[part], owned[part]);
        }
    } catch (std::exception const& error) {
        run.failures->add("stage " + std::to_string(run.stage) + " threw: " + error.what());
    }
}

/// Runs a configuration in a stage. The trainer is compiled for the engine type, which several
/// stages may share.
template <class Stage>
void run_stage(Run const& run) {
    using Engine = typename Stage::EngineType;
    run_engine<Engine>(run,
                       [](auto& communicator, auto const& registrations,
                          auto const& options) -> std::shared_ptr<Engine> {
                           return std::make_shared<Stage>(communicator, registrations, options);
                       });
}

/// The runs of a stage, and those that differed from a mistaken oracle.
struct Tally {
    std::size_t runs = 0;
    std::size_t differed = 0;
};

template <int N, std::size_t R, class Communicator, class... More>
void run_if_legal(Configuration const& c, History const& history, bool is_mistaken,
                  std::array<Tally, 4>& tallies) {
    if constexpr (is_stage<N, R>) {
        if (is_legal(N, c)) {
            Failures failures;
            run_stage<stage_t<N, R, Communicator, More...>>({&c, &history, N, &failures});
            ++tallies[N].runs;
            tallies[N].differed += failures.count() != 0 ? 1 : 0;
            if (!is_mistaken && failures.count() != 0) {
                FAIL_CHECK(describe(c)
                           << "\nstage " << N << ": " << failures.text()
                           << "\nrun it alone: ZERO_ORACLE_SEED=" << c.seed
                           << " ZERO_ORACLE_ONLY=" << c.index << " and this executable");
            }
        }
    }
}

/// Returns a configuration with groups of one of the possible sizes, on at least 4 ranks, and with
/// up to 3 parts of the model; the same one for a communicator without groups.
template <class Communicator>
Configuration in_groups(Configuration c) {
    if constexpr (ModelParallelCommunicator<Communicator>) {
        c.world = std::min<std::size_t>(c.world, 4);
        c.parts = 1 + keyed(c.seed, c.index, 83) % 3;
        c.has_experts = ExpertCommunicator<Communicator>;
        if (c.memory == Memory::adopted) { // an adopted block is that of a whole model
            c.memory = Memory::scattered;
            c.has_gradient_block = false;
        }
    }
    if constexpr (GroupedCommunicator<Communicator>) {
        c.sends_float_between = Communicator::sends_float_between;
        std::uint64_t const choice = keyed(c.seed, c.index, 77);
        c.world = c.world < 4 ? 4 + 2 * (choice % 2) : c.world;
        std::vector<std::size_t> sizes;
        for (std::size_t size = 1; size <= c.world; ++size) {
            if (c.world % size == 0) {
                sizes.push_back(size);
            }
        }
        c.shard = sizes[(choice >> 8U) % sizes.size()];
    }
    if constexpr (SecondaryCommunicator<Communicator>) {
        constexpr std::array<std::size_t, 5> worlds{4, 4, 6, 6, 8};
        std::uint64_t const choice = keyed(c.seed, c.index, 78);
        std::size_t const shard = worlds[choice % worlds.size()];
        c.secondary = shard % 3 == 0 && (choice >> 8U) % 2 == 0 ? 3
                      : shard == 8 && (choice >> 8U) % 2 == 0   ? 4
                                                                : 2;
        c.world = shard;
        if constexpr (GroupedCommunicator<Communicator>) {
            c.world = 8;
            c.shard = 4;
            c.secondary = 2;
        }
    }
    return c;
}

/// Runs all configurations of one row of the table, in all stages.
/// @tparam More policies beside those of the row, or in their place
/// @param part percentage of the planned configurations to run
/// @param change changes a configuration; false leaves it out
/// @param mistake changes what the oracle computes; then most runs of each stage must differ
template <std::size_t R, class Communicator = LoopbackCommunicator, class... More>
void run_row(std::size_t part = 100, bool (*change)(Configuration&) = nullptr,
             void (*mistake)(Configuration&) = nullptr) {
    // Groups and codes begin with stage 1, secondary copies and codes of frozen parameters with 3.
    constexpr bool has_stage_0 =
        !GroupedCommunicator<Communicator> && !(CodesGradients<More> || ...);
    constexpr bool has_stage_1 =
        !SecondaryCommunicator<Communicator> && !(CodesFrozen<More> || ...);
    Plan plan = Plan::from_environment();
    plan.configurations = plan.configurations * part / 100;
    std::size_t configurations = 0;
    std::array<Tally, 4> tallies;
    std::size_t expected = 0;
    auto const begin = std::chrono::steady_clock::now();
    for (std::size_t index = R; index < plan.end(); index += generated_rows) {
        if (plan.includes(index)) {
            Configuration c = in_groups<Communicator>(make_configuration(plan.seed, index));
            if (change != nullptr && !change(c)) {
                continue;
            }
            Configuration computed = c;
            if (mistake != nullptr) {
                mistake(computed);
            }
            History const history = compute_history(computed);
            auto const run_in = [&]<int N>(std::integral_constant<int, N>) {
                run_if_legal<N, R, Communicator, More...>(c, history, mistake != nullptr, tallies);
            };
            if constexpr (has_stage_1) {
                if constexpr (has_stage_0) {
                    run_in(std::integral_constant<int, 0>());
                    ++expected;
                }
                run_in(std::integral_constant<int, 1>());
                run_in(std::integral_constant<int, 2>());
                expected += 2;
            }
            run_in(std::integral_constant<int, 3>());
            expected += is_legal(3, c) ? 1 : 0;
            ++configurations;
        }
    }
    std::size_t runs = 0;
    for (Tally const& tally : tallies) {
        runs += tally.runs;
        CHECK((mistake == nullptr || 2 * tally.differed > tally.runs || tally.runs == 0));
    }
    CHECK(runs == expected);
    std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - begin;
    std::cout << "oracle: row " << R << " [" << rows[R].name << "], seed " << plan.seed << ": "
              << configurations << " configurations, " << runs << " runs in " << seconds.count()
              << " s\n";
}

} // namespace zero::test::oracle
