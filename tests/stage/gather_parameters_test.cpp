#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/stage/gathered_parameters.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Parameters are read and written as a whole between steps, in every stage.

namespace zero::test::gather_parameters_test {

namespace {

using namespace state_model;

constexpr std::size_t parameters = 8; ///< number of parameters of the toy model

std::vector<std::size_t> all_parameters() {
    return {0, 1, 2, 3, 4, 5, 6, 7};
}

void write(std::span<float> to, std::vector<float> const& values) {
    std::copy(values.begin(), values.end(), to.begin());
}

enum class Made { constructed, written };

/// Runs a step from weights that the engine was constructed with, or that a gather has written
/// after two other steps. The moments are those of these two steps.
template <class Stage>
std::vector<std::vector<std::uint32_t>> step_from(Made made, Gather mode, std::size_t writer) {
    using T = typename Stage::ParameterType;
    return on_ranks<std::vector<std::uint32_t>>(3, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        std::optional<Stage> before(std::in_place, communicator, registration<T>(toy_specs()));
        for (std::uint64_t step = 0; step < 2; ++step) {
            (void)run_step(*before, rank, step);
        }
        std::optional<Stage> constructed;
        if (made == Made::constructed) {
            auto registered = registration<T>(toy_specs());
            for (std::size_t p = 0; p < parameters; ++p) {
                registered[p].initialise = [p](std::size_t begin, std::span<T> values) {
                    auto const all = some_values(Exact::eight_bits, 90, p);
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        values[i] = from_float<T>(all[begin + i]);
                    }
                };
            }
            constructed.emplace(communicator, registered);
            TrainingState from(*before);
            TrainingState to(*constructed);
            for (std::size_t p = 0; p < parameters; ++p) {
                for (auto const& name :
                     toy_specs()[p].trainable ? to.state_names() : std::vector<std::string>()) {
                    to.set_full_optimizer_state(p, name, from.full_optimizer_state(p, name));
                }
            }
            constructed->set_step_count(2);
        } else {
            GatheredParameters gathered(*before, all_parameters(), mode, writer);
            for (std::size_t p = 0; p < parameters; ++p) {
                bool const is_writer = mode == Gather::all_write_equally || rank == writer;
                write(gathered.writable(p), is_writer
                                                ? some_values(Exact::eight_bits, 90, p)
                                                : std::vector<float>(toy_specs()[p].elements));
            }
            gathered.commit();
        }
        Stage& engine = constructed ? *constructed : *before;
        (void)run_step(engine, rank, 2);
        return snapshot(engine);
    });
}

template <class... Policies>
void check_step_after_write() {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Policies...>;
        auto const expected = step_from<Stage>(Made::constructed, Gather::read, 0);
        CHECK((step_from<Stage>(Made::written, Gather::one_rank_writes, 0) == expected));
        CHECK((step_from<Stage>(Made::written, Gather::one_rank_writes, 2) == expected));
        CHECK((step_from<Stage>(Made::written, Gather::all_write_equally, 0) == expected));
    });
}

} // namespace

TEST_CASE("The step after a gather for writing is that of an engine constructed with these weights "
          "and the moments of the other") {
    SECTION("Float parameters") {
        check_step_after_write<>();
    }
    SECTION("Copied master weights") {
        check_step_after_write<Parameters<bfloat16>>();
    }
    SECTION("Split master weights") {
        check_step_after_write<Parameters<bfloat16>, SplitMasterWeights>();
    }
    SECTION("No master weights") {
        check_step_after_write<Parameters<bfloat16>, NoMasterWeights>();
    }
    SECTION("Stochastic rounding") {
        check_step_after_write<Parameters<bfloat16>, StochasticRounding>();
    }
}

TEST_CASE("A gather for reading returns the weights in full precision, and keeps them") {
    using P = Parameters<bfloat16>;
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<std::vector<Bits>>(3, [](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<N, P>> toy(communicator);
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            (void)run_step(*toy.engine, rank, 0);
            auto const before = snapshot(*toy.engine);
            auto const read = gather(*toy.engine, {"embedding", "second.table"});
            std::vector<Bits> seen{bits_of(TrainingState(*toy.engine).full_fp32_parameter(0)),
                                   before, snapshot(*toy.engine)};
            (void)run_step(*toy.engine, rank, 1); // the copies stay
            seen.push_back(bits_of(read.values(0)));
            seen.push_back(bits_of(read.values("embedding")));
            seen.push_back(bits_of(TrainingState(*toy.engine).full_fp32_parameter(0)));
            seen.push_back(bits_of(read.values("second.table")));
            return seen;
        });
        for (auto const& seen : ranks) {
            CHECK(seen[1] == seen[2]);
            CHECK(seen[3] == seen[0]);
            CHECK(seen[4] == seen[0]);
            CHECK(seen[5] != seen[0]);
            CHECK(seen[6].size() == 40);
        }
    });
}

TEST_CASE("Elements that are not written keep every bit of their master weights") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>>;
        auto const ranks = on_ranks<std::vector<Bits>>(3, [](LoopbackCommunicator& communicator) {
            Toy<Stage> toy(communicator);
            (void)run_step(*toy.engine, static_cast<std::uint64_t>(communicator.rank()), 0);
            TrainingState state(*toy.engine);
            std::vector<Bits> seen{bits_of(state.full_fp32_parameter(1))};
            {
                auto weights = gather(*toy.engine, {"first.weight"}, Gather::one_rank_writes, 1);
                weights.writable(1)[3] = 0.25F + static_cast<float>(communicator.rank());
            } // commits
            seen.push_back(bits_of(state.full_fp32_parameter(1)));
            return seen;
        });
        for (auto const& seen : ranks) {
            auto expected = seen[0];
            expected[3] = std::bit_cast<std::uint32_t>(1.25F); // of rank 1
            CHECK(seen[0] != bits_of(rounded<Stage>(1, [&] {
                      std::vector<float> values;
                      for (std::uint32_t const bits : seen[0]) {
                          values.push_back(std::bit_cast<float>(bits));
                      }
                      return values;
                  }())));
            CHECK(seen[1] == expected);
        }
    });
}

namespace {

/// Returns what each rank reads after one rank has written every parameter.
template <class Stage>
std::vector<std::vector<std::vector<float>>> written(Gather mode,
                                                     typename Stage::Options const& options) {
    return on_ranks<std::vector<std::vector<float>>>(3, [&](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator, options);
        GatheredParameters weights(*toy.engine, all_parameters(), mode);
        for (std::size_t p = 0; p < parameters; ++p) {
            if (mode == Gather::all_write_equally || communicator.rank() == 0) {
                write(weights.writable(p), some_values(Exact::every_float, 70, p));
            }
        }
        weights.commit();
        return full_parameters(*toy.engine);
    });
}

template <class Stage>
void check_written(typename Stage::Options const& options) {
    for (Gather const mode : {Gather::one_rank_writes, Gather::all_write_equally}) {
        for (auto const& rank : written<Stage>(mode, options)) {
            for (std::size_t p = 0; p < parameters; ++p) {
                INFO("parameter " << p);
                CHECK((bits_of(rank[p])
                       == bits_of(rounded<Stage>(p, some_values(Exact::every_float, 70, p)))));
            }
        }
    }
}

} // namespace

TEST_CASE("A write reaches parameters in the caller's memory, and those of several types") {
    auto const in_storages = []<int N>() {
        INFO("stage " << N);
        using Stage = ZeroStage<N, Parameters<bfloat16>>;
        check_written<Stage>({.storage = Storage::scattered});
        check_written<Stage>({.storage = Storage::adopted});
    };
    in_storages.operator()<0>();
    in_storages.operator()<1>();
    in_storages.operator()<2>();
    in_every_stage([]<int N>() { check_written<ZeroStage<N, Parameters<bfloat16, float>>>({}); });
}

namespace {

/// The observations of a rank before and after a call that must change nothing.
struct Unchanged {
    Outcome outcome;
    Outcome later;
    std::vector<std::uint32_t> before, after;
};

template <int N, class Test>
std::vector<Unchanged> observe(Test const& test) {
    return on_ranks<Unchanged>(3, [&](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<N, Parameters<bfloat16>>> toy(communicator);
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        (void)run_step(*toy.engine, rank, 0);
        Unchanged seen;
        seen.before = snapshot(*toy.engine);
        seen.outcome = outcome_of([&] { test(*toy.engine, communicator.rank()); });
        seen.after = snapshot(*toy.engine);
        seen.later = outcome_of([&] { (void)run_step(*toy.engine, rank, 1).report(); });
        return seen;
    });
}

template <class Test>
void check_refused(std::string const& type, std::string const& message, Test const& test) {
    in_every_stage([&]<int N>() {
        for (Unchanged const& seen : observe<N>(test)) {
            CHECK(seen.outcome.type == type);
            CHECK_THAT(seen.outcome.message, contains_text(message.c_str()));
            CHECK(seen.before == seen.after);
            CHECK(seen.later == Outcome{});
        }
    });
}

} // namespace

TEST_CASE("Ranks that write different values are told the parameter and the rank, and nothing is "
          "changed") {
    check_refused("InvalidArgument",
                  "rank 2 and rank 0 wrote different values into parameter 'second.weight'",
                  [](auto& engine, int rank) {
                      auto weights = gather(engine, {"first.weight", "second.weight"},
                                            Gather::all_write_equally);
                      weights.writable("first.weight")[0] = 3.0F;
                      weights.writable("second.weight")[128] = rank == 2 ? 1.0F : 2.0F;
                      weights.commit();
                  });
}

TEST_CASE("Ranks that gather different parameters, or for another use, are refused alike") {
    check_refused(
        "InvalidArgument", "rank 1 gathers other parameters than rank 0",
        [](auto& engine, int rank) { GatheredParameters read(engine, {rank == 1 ? 3U : 0U}); });
    check_refused("InvalidArgument", "rank 2 gathers for another use than rank 0",
                  [](auto& engine, int rank) {
                      GatheredParameters read(engine, {3},
                                              rank == 2 ? Gather::one_rank_writes : Gather::read);
                  });
    check_refused("InvalidArgument", "rank 1 gathers with another writer than rank 0",
                  [](auto& engine, int rank) {
                      GatheredParameters read(engine, {3}, Gather::one_rank_writes,
                                              rank == 1 ? 1 : 0);
                  });
}

TEST_CASE("Misuse of gathered parameters is refused with the parameter's name") {
    auto const nothing = [](auto&&) {};
    check_refused("InvalidArgument", "no parameter is named 'embeding'",
                  [&](auto& engine, int) { nothing(gather(engine, {"embeding"})); });
    check_refused("InvalidArgument", "parameter 8 does not exist; the model has 8",
                  [&](auto& engine, int) { GatheredParameters const read(engine, {8}); });
    check_refused("InvalidArgument", "lists parameter 'embedding' twice", [&](auto& engine, int) {
        nothing(gather(engine, {"embedding", "embedding"}));
    });
    check_refused("InvalidArgument", "rank 3 cannot write", [&](auto& engine, int) {
        nothing(gather(engine, {"embedding"}, Gather::one_rank_writes, 3));
    });
    check_refused(
        "InvalidArgument", "parameter 'embedding' is not one of those",
        [&](auto& engine, int) { nothing(gather(engine, {"first.bias"}).values("embedding")); });
    check_refused(
        "OutOfOrder", "gathered for reading; pass Gather::one_rank_writes",
        [&](auto& engine, int) { nothing(gather(engine, {"first.bias"}).writable("first.bias")); });
    check_refused("OutOfOrder", "writable() after commit()", [&](auto& engine, int) {
        auto weights = gather(engine, {"first.bias"}, Gather::one_rank_writes);
        weights.commit();
        nothing(weights.writable("first.bias"));
    });
}

TEST_CASE("What was written is committed after a commit that was refused") {
    auto const all = on_ranks<std::pair<std::string, float>>(2, [](LoopbackCommunicator& ranks) {
        std::vector<Parameter<float>> const one{{.name = "weight", .elements = 5}};
        ZeroStage<3> engine(ranks, one);
        auto weights = gather(engine, {"weight"}, Gather::one_rank_writes);
        weights.writable("weight")[0] = 5.0F;
        std::string refused;
        {
            auto const held = engine.acquire(0);
            refused = outcome_of([&] { weights.commit(); }).message;
        }
        weights.writable("weight")[1] = 6.0F;
        weights.commit();
        auto const read = gather(engine, {"weight"});
        return std::pair(refused, read.values("weight")[0] + read.values("weight")[1]);
    });
    for (auto const& [refused, sum] : all) {
        CHECK_THAT(refused, contains_text("commit() while weights of"));
        CHECK(sum == 11.0F);
    }
}

TEST_CASE("A second gather for writing, and a step, are refused while one is open") {
    check_refused("OutOfOrder", "parameter 'embedding' is gathered for writing twice",
                  [](auto& engine, int) {
                      auto const outer =
                          gather(engine, {"first.bias", "embedding"}, Gather::all_write_equally);
                      auto const inner = gather(engine, {"embedding"}, Gather::one_rank_writes);
                  });
    check_refused("OutOfOrder", "begin_step() while parameter 'first.bias' is gathered for writing",
                  [](auto& engine, int) {
                      auto const outer =
                          gather(engine, {"first.bias", "embedding"}, Gather::all_write_equally);
                      engine.begin_step();
                  });
}

TEST_CASE("An exception that unwinds through a gather drops what was written") {
    check_refused("other", "no such token", [](auto& engine, int) {
        auto weights = gather(engine, {"embedding"}, Gather::all_write_equally);
        weights.writable("embedding")[0] = 7.0F;
        throw std::runtime_error("no such token");
    });
}

TEST_CASE("Nested gathers read what was committed before they began") {
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<std::vector<float>>(3, [](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<N, Parameters<bfloat16>>> toy(communicator);
            auto& engine = *toy.engine;
            auto const read = gather(engine, {"first.bias"});
            float const old = read.values("first.bias")[2];
            std::vector<float> seen;
            {
                auto outer = gather(engine, {"first.bias"}, Gather::all_write_equally);
                outer.writable("first.bias")[2] = old + 8.0F;
                {
                    auto inner = gather(engine, {"head.scale"}, Gather::all_write_equally);
                    inner.writable("head.scale")[0] = 5.0F;
                    seen.push_back(gather(engine, {"first.bias"}).values("first.bias")[2] - old);
                    seen.push_back(inner.values("head.scale")[0]);
                } // commits the inner one
                seen.push_back(gather(engine, {"head.scale"}).values("head.scale")[0]);
            }
            seen.push_back(gather(engine, {"first.bias"}).values("first.bias")[2] - old);
            seen.push_back(read.values("first.bias")[2] - old);
            return seen;
        });
        for (auto const& seen : ranks) {
            CHECK(seen == std::vector<float>{0.0F, 5.0F, 5.0F, 8.0F, 0.0F});
        }
    });
}

TEST_CASE("Different values at the end of a scope break the engine with the cause") {
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<N, Parameters<bfloat16>>> toy(communicator);
            {
                auto weights = gather(*toy.engine, {"first.bias"}, Gather::all_write_equally);
                weights.writable("first.bias")[0] = static_cast<float>(communicator.rank());
            }
            return outcome_of([&] { toy.engine->begin_step(); });
        });
        for (Outcome const& outcome : ranks) {
            CHECK(outcome.type == "BrokenEngine");
            CHECK_THAT(outcome.message, contains_text("wrote different values into parameter"));
        }
    });
}

} // namespace zero::test::gather_parameters_test
