#pragma once

// Runs configurations in all stages that accept them, and reports every difference from the oracle
// on the main thread.

#include "support/catch.hpp"

#include "generator.hpp"
#include "trainer.hpp"

#include <zero/comm/grouped_communicator.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/run_ranks.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
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
    std::vector<std::vector<std::vector<unsigned>>> owned(run.configuration->world);
    auto const body = [&](Communicator& communicator) {
        Trainer<Engine> trainer(communicator, run, make);
        trainer.train();
        owned[static_cast<std::size_t>(communicator.rank())] = trainer.owned();
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
            if constexpr (GroupedCommunicator<Communicator>
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
        check_ownership(run, owned);
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

template <int N, std::size_t R, class Communicator, class... More>
void run_if_legal(Configuration const& c, History const& history, std::size_t& runs) {
    if constexpr (is_stage<N, R>) {
        if (is_legal(N, c)) {
            Failures failures;
            run_stage<stage_t<N, R, Communicator, More...>>({&c, &history, N, &failures});
            ++runs;
            if (failures.count() != 0) {
                FAIL_CHECK(describe(c)
                           << "\nstage " << N << ": " << failures.text()
                           << "\nrun it alone: ZERO_ORACLE_SEED=" << c.seed
                           << " ZERO_ORACLE_ONLY=" << c.index << " and this executable");
            }
        }
    }
}

/// Returns a configuration with groups of one of the possible sizes, on at least 4 ranks; the same
/// one for a communicator without groups.
template <class Communicator>
Configuration in_groups(Configuration c) {
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
template <std::size_t R, class Communicator = LoopbackCommunicator, class... More>
void run_row(std::size_t part = 100, bool (*change)(Configuration&) = nullptr) {
    // Groups and codes begin with stage 1.
    constexpr bool has_stage_0 =
        !GroupedCommunicator<Communicator> && !(CodesGradients<More> || ...);
    Plan plan = Plan::from_environment();
    plan.configurations = plan.configurations * part / 100;
    std::size_t configurations = 0;
    std::size_t runs = 0;
    std::size_t expected = 0;
    auto const begin = std::chrono::steady_clock::now();
    for (std::size_t index = R; index < plan.end(); index += generated_rows) {
        if (plan.includes(index)) {
            Configuration c = in_groups<Communicator>(make_configuration(plan.seed, index));
            if (change != nullptr && !change(c)) {
                continue;
            }
            History const history = compute_history(c);
            if constexpr (!SecondaryCommunicator<Communicator>) { // it is for stage 3
                if constexpr (has_stage_0) {
                    run_if_legal<0, R, Communicator, More...>(c, history, runs);
                    ++expected;
                }
                run_if_legal<1, R, Communicator, More...>(c, history, runs);
                run_if_legal<2, R, Communicator, More...>(c, history, runs);
                expected += 2;
            }
            run_if_legal<3, R, Communicator, More...>(c, history, runs);
            expected += is_legal(3, c) ? 1 : 0;
            ++configurations;
        }
    }
    CHECK(runs == expected);
    std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - begin;
    std::cout << "oracle: row " << R << " [" << rows[R].name << "], seed " << plan.seed << ": "
              << configurations << " configurations, " << runs << " runs in " << seconds.count()
              << " s\n";
}

} // namespace zero::test::oracle
