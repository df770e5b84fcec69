#include "support/account.hpp"
#include "support/catch.hpp"
#include "wire_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/training_state.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

// Frozen parameters in codes: a run reads, and trains with, what a run without codes does whose
// frozen parameters were decoded before; memory and traffic are those of the codes.

namespace zero::test::frozen_weights_test {

namespace {

using namespace wire_model;

template <class T, class... Policies>
using Plainly = ZeroStage<3, Parameters<T>, Policies...>;

template <class C, class T, class... Policies>
using Frozen = ZeroStage<3, Parameters<T>, FrozenWeights<C>, Policies...>;

/// Units of trainable and frozen parameters of any size, of which a frozen one has elements.
std::vector<ParameterSpec> random_specs(std::uint64_t seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    std::array<std::size_t, 9> const sizes{0, 1, 63, 64, 65, 127, 128, 200, 1000};
    std::size_t const units = 1 + random() % 3;
    std::vector<ParameterSpec> specs{{"first", 65, {0}, 0, true}, {"base", 130, {0}, 0, false}};
    for (std::size_t unit = 0; unit < units; ++unit) {
        for (std::size_t count = random() % 4; count-- > 0;) {
            specs.push_back({"p" + std::to_string(specs.size()),
                             sizes[random() % sizes.size()],
                             {unit},
                             0,
                             random() % 2 == 0});
        }
    }
    specs.push_back({"last", 1, {units - 1}, 0, false});
    return specs;
}

/// Registers values of which some are filled by their owners, and some are not given.
/// @tparam C the frozen parameters have the values that pass through the codec
template <class T, class C = Plain>
std::vector<Parameter<T>> registered(std::vector<ParameterSpec> const& specs, std::uint64_t seed) {
    auto parameters = registration<T>(specs);
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        parameters[index].is_deterministic = noise(seed, index) > 0.0F;
        if (noise(seed, index, 1) > 0.7F) {
            parameters[index].initialise = {};
        } else if constexpr (!std::is_same_v<C, Plain>) {
            if (!parameters[index].trainable) {
                auto const values =
                    coded<C, T>(initial_values<T>(index, parameters[index].elements));
                parameters[index].initialise = [values](std::size_t begin, std::span<T> out) {
                    for (std::size_t i = 0; i < out.size(); ++i) {
                        out[i] = from_float<T>(values[begin + i]);
                    }
                };
            }
        }
    }
    return parameters;
}

/// A step whose gradients follow from all weights of their unit.
template <class Engine>
void train(Engine& engine, std::uint64_t rank, std::uint64_t step) {
    using T = typename Engine::ParameterType;
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(2)) {
        (void)micro_step;
        pass_through(engine, [&](std::size_t unit, std::size_t parameter, auto const& weights,
                                 auto const& gradient) {
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float sum = noise(rank, step, parameter, i);
                for (std::size_t const other : engine.layout().unit_parameters(unit)) {
                    auto const read = weights[other];
                    sum += read.empty() ? 0.0F : to_float(read[i % read.size()]);
                }
                gradient[i] = from_float<T>(to_float(gradient[i]) + sum);
            }
        });
    }
    (void)engine.step(0.05).report();
}

struct Run {
    Values first, read, masters; ///< as a pass reads them, before and after; in full precision
    friend bool operator==(Run const&, Run const&) = default;
};

/// Trains two steps.
template <class Stage, class C = Plain>
Run run(int world, std::vector<ParameterSpec> const& specs, std::uint64_t seed,
        typename Stage::Options const& options = {}) {
    using T = typename Stage::ParameterType;
    auto const all = on_ranks<Run>(world, [&](LoopbackCommunicator& ranks) {
        Stage engine(ranks, registered<T, C>(specs, seed), options);
        Run own;
        own.first = full_parameters(engine);
        for (std::uint64_t step = 0; step < 2; ++step) {
            train(engine, static_cast<std::uint64_t>(ranks.rank()), step);
        }
        own.read = full_parameters(engine);
        for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
            own.masters.push_back(TrainingState(engine).full_fp32_parameter(parameter));
            if (!specs[parameter].trainable) { // rounded once to the type, as it is read
                for (float& value : own.masters.back()) {
                    value = to_float(from_float<T>(value));
                }
            }
        }
        return own;
    });
    for (Run const& own : all) {
        CHECK((own == all[0]));
    }
    return all[0];
}

template <class C, class T>
void check_bits() {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        auto const specs = random_specs(seed);
        auto const expected = [&](int world) { return run<Plainly<T>, C>(world, specs, seed); };
        for (int const world : {1, 2, 3, 5}) {
            CAPTURE(seed, world);
            Run const plain = expected(world);
            CHECK((run<Frozen<C, T>>(world, specs, seed) == plain));
            switch (seed % 4) {
            case 0:
                CHECK((run<Frozen<C, T>>(world, specs, seed, {.poison = true}) == plain));
                break;
            case 1:
                CHECK((run<Frozen<C, T, BalancedPartitioner>>(world, specs, seed) == plain));
                break;
            case 2:
                CHECK((run<Frozen<C, T>>(
                           world, specs, seed,
                           {.gather = {.persistence_threshold = 100, .keep_after_forward = 1}})
                       == plain));
                break;
            default:
                CHECK((run<Frozen<C, T>>(
                           world, specs, seed,
                           {.rebuild_buckets = Frozen<C, T>::in_ready_order, .poison = true})
                       == plain));
            }
        }
    }
}

} // namespace

TEST_CASE("Gradients and updates are those of a run whose frozen parameters were decoded before, "
          "bit for bit, in 8 bits") {
    check_bits<Int8Blocks, bfloat16>();
}

TEST_CASE("The same holds in 4 bits, for floats") {
    check_bits<Int4Blocks, float>();
}

TEST_CASE("Weights, gradients and frozen parameters have codecs of their own") {
    using Without = ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks, Int8Blocks>>;
    using With =
        ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks, Int8Blocks, NoFeedback, Int4Blocks>>;
    for (std::uint64_t seed = 20; seed < 24; ++seed) {
        for (int const world : {1, 3}) {
            CAPTURE(seed, world);
            auto const specs = random_specs(seed);
            CHECK((run<With>(world, specs, seed) == run<Without, Int4Blocks>(world, specs, seed)));
        }
    }
}

TEST_CASE(
    "Without a codec of frozen parameters the same run has other bits") { // or the comparisons show
                                                                          // nothing
    auto const specs = random_specs(3);
    CHECK((run<Plainly<bfloat16>>(2, specs, 3) != run<Frozen<Int8Blocks, bfloat16>>(2, specs, 3)));
}

namespace {

/// The codes that this rank holds.
template <class Engine>
std::vector<std::byte> own_codes(Engine& engine) {
    std::vector<std::byte> codes;
    TrainingState(engine).for_each_held_array([&](std::string const& name, auto const& array) {
        for (auto const& slice : array.slices) {
            if (name == "frozen") {
                auto const* data = static_cast<std::byte const*>(slice.data);
                codes.insert(codes.end(), data, data + array.bytes(slice.elements));
            }
        }
    });
    return codes;
}

} // namespace

TEST_CASE("Values that are written back as they were read keep every code, and a written element "
          "changes its block only") {
    for (int const world : {1, 2, 3}) {
        auto const right = on_ranks<int>(world, [&](LoopbackCommunicator& all) {
            Frozen<Int4Blocks, bfloat16> engine(all, registered<bfloat16>(random_specs(5), 5));
            auto const before = own_codes(engine);
            auto const shown = full_parameters(engine);
            { auto const held = gather(engine, {"base", "last"}, Gather::one_rank_writes); }
            { auto const held = gather(engine, {"base"}, Gather::all_write_equally); }
            TrainingState state(engine);
            auto const values = state.full_fp32_parameter(1);
            state.set_full_fp32_parameter(1, values);
            for (auto const& slice : state.local_fp32_parameter(1)) {
                state.set_local_fp32_parameter(1, slice.begin, slice.values);
            }
            bool is_right = own_codes(engine) == before && full_parameters(engine) == shown;
            {
                auto held = gather(engine, {"base"}, Gather::one_rank_writes);
                held.writable("base")[70] = 9.0F;
            }
            auto const now = full_parameters(engine);
            is_right = is_right && now[1][70] == 9.0F; // the largest of its block, in bfloat16
            for (std::size_t i = 0; i < 130; ++i) {
                bool const is_other = i < 64 || i >= 128;
                is_right = is_right && (!is_other || now[1][i] == shown[1][i]);
            }
            return is_right && std::abs(now[1][71]) < 1.3F ? 1 : 0; // 0, or 9 / 7
        });
        CHECK(right == std::vector<int>(static_cast<std::size_t>(world), 1));
    }
}

TEST_CASE("A NaN or an infinity in a frozen parameter is read in its block only, and stays there") {
    auto const right = on_ranks<int>(2, [](LoopbackCommunicator& all) {
        auto parameters = registered<bfloat16>(random_specs(6), 6);
        parameters[1].is_deterministic = true;
        parameters[1].initialise = [](std::size_t begin, std::span<bfloat16> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = from_float<bfloat16>(
                    begin + i == 65 ? -std::numeric_limits<float>::infinity() : 1.0F);
            }
        };
        Frozen<Int8Blocks, bfloat16> engine(all, parameters);
        bool is_right = true;
        for (int turn = 0; turn < 2; ++turn) {
            auto const read = full_parameters(engine)[1];
            for (std::size_t i = 0; i < read.size(); ++i) {
                is_right = is_right && std::isnan(read[i]) == (i >= 64 && i < 128);
            }
            auto const held = gather(engine, {"base"}, Gather::one_rank_writes); // writes it back
        }
        return is_right ? 1 : 0;
    });
    CHECK(right == std::vector<int>(2, 1));
}

namespace {

/// Compares the plan with what is allocated. @return the plan of rank 0
template <class Stage>
MemoryPlan planned(int world, std::vector<ParameterSpec> const& specs) {
    return check_accounts(on_ranks<Account>(world, [&](LoopbackCommunicator& all) {
        HostMemoryResource memory;
        Stage engine(all, registered<bfloat16>(specs, 1), {.memory = &memory});
        return account_of(engine, memory,
                          [&] { train(engine, static_cast<std::uint64_t>(all.rank()), 0); });
    }));
}

} // namespace

TEST_CASE("A frozen element takes 66/64 or 34/64 bytes, and the plan is what is allocated") {
    std::vector<ParameterSpec> const specs{{"base", 3840, {0}, 0, false},
                                           {"adapter", 256, {0}, 0, true}};
    for (std::size_t const world : {1U, 2U}) {
        CAPTURE(world);
        auto const row = [&]<class Stage>(Stage const*) {
            return planned<Stage>(static_cast<int>(world), specs)[BufferKind::parameters];
        };
        Plainly<bfloat16> const* plain = nullptr;
        Frozen<Int8Blocks, bfloat16> const* eight = nullptr;
        Frozen<Int4Blocks, bfloat16> const* four = nullptr;
        CHECK(row(plain).bytes() == (3840 * 2 + 256 * 2) / world);
        CHECK(row(eight).bytes() == (3840 / 64 * 66 + 256 * 2) / world);
        CHECK(row(four).bytes() == (3840 / 64 * 34 + 256 * 2) / world);
        CHECK(row(eight).padding_bytes == 0);
    }
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        for (int const world : {1, 3, 5}) {
            CAPTURE(seed, world);
            (void)planned<Frozen<Int8Blocks, bfloat16>>(world, random_specs(seed));
        }
    }
    // 70 elements are two blocks, of which three ranks have one at most
    auto const plan = planned<Frozen<Int8Blocks, bfloat16>>(
        3, {{"base", 70, {0}, 0, false}, {"adapter", 1, {0}, 0, true}});
    CHECK(plan[BufferKind::parameters].content_bytes == 66 + 2);
    CHECK(plan[BufferKind::parameters].padding_bytes == 63 * 2);
    CHECK(plan[BufferKind::weight_codes].bytes() == 3 * 66);
}

TEST_CASE("Gathers send the codes of frozen parameters, as the transport and the model count") {
    using Hosts = Groups<LoopbackCommunicator, Secondary>;
    std::vector<ParameterSpec> const specs{{"base.0", 3072, {0}, 0, false},
                                           {"adapter.0", 256, {0}, 0, true},
                                           {"base.1", 3072, {1}, 0, false},
                                           {"adapter.1", 256, {1}, 0, true}};
    std::vector<std::array<std::uint64_t, 4>> counts(4);
    std::vector<std::array<std::uint64_t, 2>> flat(4);
    run_ranks<Hosts>(4, test_time_out, {.secondary = 2}, [&](Hosts& hosts) {
        auto const rank = static_cast<std::size_t>(hosts.rank());
        Frozen<Int8Blocks, bfloat16, Hosts> engine(hosts, registered<bfloat16>(specs, 9));
        train(engine, rank, 0);
        hosts.everyone().reset_traffic();
        hosts.secondary().reset_traffic();
        train(engine, rank, 1);
        std::vector<std::size_t> const units{0, 1, 1, 0, 0, 1, 1, 0};
        auto const step = count_step_communication(
            engine.layout(), rank, 3, engine.schedule(), 2, units,
            {.sizes = {.parameter = 2}, .secondary_ranks = 2, .frozen_block_bytes = 66});
        counts[rank] = {hosts.everyone().traffic()[CollectiveKind::all_gather].bytes,
                        hosts.secondary().traffic()[CollectiveKind::all_gather].bytes,
                        step.gathers.bytes, step.secondary.bytes};
    });
    run_ranks<LoopbackCommunicator>(4, test_time_out, [&](LoopbackCommunicator& all) {
        auto const rank = static_cast<std::size_t>(all.rank());
        Frozen<Int4Blocks, bfloat16> engine(all, registered<bfloat16>(specs, 9));
        train(engine, rank, 0);
        all.reset_traffic();
        train(engine, rank, 1);
        std::vector<std::size_t> const units{0, 1, 1, 0, 0, 1, 1, 0};
        auto const step =
            count_step_communication(engine.layout(), rank, 3, engine.schedule(), 2, units,
                                     {.sizes = {.parameter = 2}, .frozen_block_bytes = 34});
        flat[rank] = {all.traffic()[CollectiveKind::all_gather].bytes, step.gathers.bytes};
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
        auto const& [everyone, inside, gathers, copies] = counts[rank];
        CHECK(everyone == (2 * 3072 / 64 * 66 + 2 * 256 * 2) * 3 / 4);
        CHECK(gathers == everyone);
        CHECK(copies == inside);                                        // what was decoded
        CHECK(flat[rank][0] == 8 * (3072 / 64 * 34 + 256 * 2) * 3 / 4); // four passes, two units
        CHECK(flat[rank][1] == flat[rank][0]);
    }
}

TEST_CASE("A model without frozen parameters is refused, and so are ranks with different codecs") {
    for (std::size_t const frozen : {0U, 1U}) { // an empty one is no use
        std::vector<ParameterSpec> specs{{"first", 65, {0}, 0, true}};
        if (frozen != 0) {
            specs.push_back({"empty", 0, {0}, 0, false});
        }
        auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& all) {
            Frozen<Int8Blocks, bfloat16> const engine(all, registration<bfloat16>(specs));
        });
        for (auto const& rank : outcomes.ranks) {
            CHECK(rank.type == "InvalidArgument");
            CHECK_THAT(rank.message,
                       contains_text(frozen == 0 ? "none of the 1 parameters is frozen"
                                                 : "none of the 2 parameters is frozen"));
        }
    }
    auto const specs = random_specs(1);
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& all) {
        if (all.rank() == 0) {
            Frozen<Int8Blocks, bfloat16> const engine(all, registration<bfloat16>(specs));
        } else {
            Frozen<Int4Blocks, bfloat16> const engine(all, registration<bfloat16>(specs));
        }
    });
    CHECK(outcomes.ranks[0].type == "LayoutMismatch");
    CHECK(outcomes.ranks[1].type == "LayoutMismatch");
}

TEST_CASE("The description names the codec of frozen parameters") {
    CHECK(describe<Frozen<Int8Blocks, bfloat16>>().find(", frozen parameters kept as Int8Blocks")
          != std::string::npos);
    CHECK(describe<Plainly<bfloat16>>().find("frozen") == std::string::npos);
}

} // namespace zero::test::frozen_weights_test
