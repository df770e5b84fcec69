#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/comm/recording.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/ops/counter_random.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// Initial values that every rank may compute are computed by their owners.

namespace zero::test::sharded_initialisation_test {

namespace {

using Values = std::vector<std::vector<float>>;

/// Which ranks are asked for values.
enum class Filled { by_rank_0, by_owners };

/// The toy model with values that depend on the element's number only. Parameter 2 has none: it is
/// zero.
template <class T>
std::vector<Parameter<T>> model(Filled filled) {
    auto parameters = registration<T>(toy_specs());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        parameters[p].initialise = [p](std::size_t begin, std::span<T> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = from_float<T>(ops::uniform(ops::random_key(5, p), begin + i));
            }
        };
        parameters[p].is_deterministic = filled == Filled::by_owners;
    }
    parameters[2].initialise = nullptr;
    return parameters;
}

template <class Stage>
Values initial(int world, Filled filled, typename Stage::Options const& options = {}) {
    using T = typename Stage::ParameterType;
    return on_ranks<Values>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model<T>(filled), options);
        return full_parameters(engine);
    })[static_cast<std::size_t>(world) - 1];
}

Values expected() {
    Values values;
    for (std::size_t p = 0; p < toy_specs().size(); ++p) {
        values.emplace_back(toy_specs()[p].elements);
        for (std::size_t i = 0; i < values.back().size() && p != 2; ++i) {
            values.back()[i] = ops::uniform(ops::random_key(5, p), i);
        }
    }
    return values;
}

template <class Stage>
void check_worlds() {
    for (int world = 1; world <= 8; ++world) {
        INFO("W = " << world);
        CHECK((initial<Stage>(world, Filled::by_owners) == expected()));
        CHECK((initial<Stage>(world, Filled::by_owners, {.poison = true}) == expected()));
    }
    CHECK((initial<Stage>(3, Filled::by_rank_0) == expected()));
}

} // namespace

TEST_CASE("Owners and rank 0 compute the same model with every partitioner on 1 to 8 ranks") {
    SECTION("Contiguous, stage 0") {
        check_worlds<ZeroStage<0>>();
    }
    SECTION("Contiguous, stage 1") {
        check_worlds<ZeroStage<1>>();
    }
    SECTION("Contiguous, stage 2") {
        check_worlds<ZeroStage<2>>();
    }
    SECTION("Contiguous, stage 3") {
        check_worlds<ZeroStage<3>>();
    }
    SECTION("Balanced") {
        check_worlds<ZeroStage<3, BalancedPartitioner>>();
    }
    SECTION("Round robin") {
        check_worlds<ZeroStage<3, RoundRobinPartitioner>>();
    }
    SECTION("Per tensor") {
        check_worlds<ZeroStage<3, PerTensorPartitioner>>();
    }
    SECTION("Whole group") {
        check_worlds<ZeroStage<2, WholeGroupPartitioner>>();
    }
    SECTION("Dealt group") {
        check_worlds<ZeroStage<2, DealtGroupPartitioner>>();
    }
}

TEST_CASE("Master weights and states after training do not depend on who computed the values") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>>;
        auto const train = [](Filled filled) {
            return Trained::joined(on_ranks<Trained>(3, [&](LoopbackCommunicator& communicator) {
                Stage engine(communicator, model<bfloat16>(filled),
                             {.reduction = {.schedule = ReductionSchedule::boundary}});
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                for (std::uint64_t step = 0; step < 2; ++step) {
                    (void)run_step(engine, rank, step, 2);
                }
                Trained result;
                result.resize(toy_specs());
                result.parameters = full_parameters(engine);
                engine.for_each_owned_slice([&](auto const& slice) { result.add(slice); });
                return result;
            }));
        };
        CHECK((train(Filled::by_owners) == train(Filled::by_rank_0)));
    });
}

namespace {

struct Counts {
    TrafficCount traffic;
    std::uint64_t asked = 0;   ///< elements that this rank computed
    std::uint64_t updated = 0; ///< elements that it owns
    std::size_t padded = 0;    ///< elements of all buckets, padding included
};

template <int N>
std::vector<Counts> count(int world, Filled filled, bool one_is_sent = false) {
    return on_ranks<Counts>(world, [&](LoopbackCommunicator& communicator) {
        Counts counts;
        auto parameters = model<float>(filled);
        for (auto& parameter : parameters) {
            if (parameter.initialise) {
                parameter.initialise = [&counts, fill = parameter.initialise](
                                           std::size_t begin, std::span<float> values) {
                    counts.asked += values.size();
                    fill(begin, values);
                };
            }
        }
        if (one_is_sent) {
            parameters[3].is_deterministic = false;
        }
        ZeroStage<N> engine(communicator, parameters);
        counts.traffic = communicator.traffic();
        for (std::size_t bucket = 0; bucket < engine.layout().buckets(); ++bucket) {
            engine.layout().for_slices(
                bucket,
                engine.layout().extent(bucket, static_cast<std::size_t>(communicator.rank())),
                [&](Piece const& piece) {
                    counts.updated += piece.parameter == 2 ? 0 : piece.elements;
                });
        }
        counts.padded = engine.layout().padded_elements();
        return counts;
    });
}

std::uint64_t sum(std::vector<Counts> const& ranks, CollectiveKind kind) {
    std::uint64_t elements = 0;
    for (Counts const& rank : ranks) {
        elements += rank.traffic[kind].elements;
    }
    return elements;
}

} // namespace

TEST_CASE("In stage 3 an initialisation by owners moves no element") {
    for (int const world : {2, 3, 8}) {
        INFO("W = " << world);
        auto const others = static_cast<std::uint64_t>(world) - 1;
        auto const owners = count<3>(world, Filled::by_owners);
        CHECK(sum(owners, CollectiveKind::broadcast) == 0);
        for (Counts const& rank : owners) {
            CHECK(rank.asked == rank.updated);
        }
        // the values of rank 0 are sent to every other rank
        auto const sent = count<3>(world, Filled::by_rank_0);
        CHECK(sum(sent, CollectiveKind::broadcast) == sent[0].padded * others);
        // in both cases the ranks compare layouts and options, and gather nothing else
        CHECK(sum(owners, CollectiveKind::all_gather) == sum(sent, CollectiveKind::all_gather));
        CHECK(sum(owners, CollectiveKind::all_gather) < 1500);
        CHECK(sent[0].asked == 300 + 500 + 129 + 40 + 64 + 1);
        CHECK(sent[1].asked == 0);
    }
}

TEST_CASE("Stages 0 to 2 compute the values side by side and gather them once") {
    auto const check = []<int N>() {
        INFO("stage " << N);
        auto const ranks = count<N>(4, Filled::by_owners);
        CHECK(sum(ranks, CollectiveKind::broadcast) == 0);
        std::uint64_t const compared =
            sum(count<N>(4, Filled::by_rank_0), CollectiveKind::all_gather);
        CHECK(sum(ranks, CollectiveKind::all_gather) == ranks[0].padded * 3 + compared);
        std::uint64_t asked = 0;
        for (Counts const& rank : ranks) {
            CHECK(rank.asked == rank.updated);
            asked += rank.asked;
        }
        CHECK(asked == 300 + 500 + 129 + 40 + 64 + 1);
    };
    check.operator()<0>();
    check.operator()<1>();
    check.operator()<2>();
}

TEST_CASE("A bucket is sent if one of its parameters can only be computed on rank 0") {
    auto const ranks = count<3>(2, Filled::by_owners, true);
    // unit 2 holds parameters 3 (trainable) and 4 (frozen), in a bucket each
    CHECK(sum(ranks, CollectiveKind::broadcast) == 256);
    CHECK(ranks[0].asked == ranks[0].updated - 128 + 129); // of 129 elements rank 0 owns 128
    CHECK(ranks[1].asked == ranks[1].updated - 1);
}

TEST_CASE("Ranks that differ in who computes the values are told which option differs") {
    in_every_stage([]<int N>() {
        for (bool const differs_in_function : {false, true}) {
            auto const seen = on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
                auto parameters = model<float>(Filled::by_owners);
                if (communicator.rank() == 1) {
                    parameters[1].is_deterministic = differs_in_function;
                    parameters[1].initialise = nullptr;
                }
                return outcome_of([&] { ZeroStage<N> engine(communicator, parameters); });
            });
            for (Outcome const& outcome : seen) {
                CHECK(outcome.type == "LayoutMismatch");
                CHECK_THAT(outcome.message, contains_text("'is_deterministic'"));
            }
        }
    });
}

TEST_CASE("Values that only rank 0 reads are no deterministic ones") {
    std::array<float, 300> values{};
    auto const seen = on_ranks<Outcome>(1, [&](LoopbackCommunicator& communicator) {
        auto parameters = model<float>(Filled::by_owners);
        parameters[0].initialise = nullptr;
        parameters[0].initial = values.data();
        return outcome_of([&] { ZeroStage<3> engine(communicator, parameters); });
    })[0];
    CHECK(seen.type == "InvalidArgument");
    CHECK_THAT(seen.message, contains_text("parameter 'embedding' is deterministic"));
}

TEST_CASE("An initialiser that fails on one owner releases the other ranks") {
    in_every_stage([]<int N>() {
        auto const outcomes = run_and_observe(3, [](LoopbackCommunicator& communicator) {
            auto parameters = model<float>(Filled::by_owners);
            parameters[0].initialise = [&](std::size_t, std::span<float>) {
                if (communicator.rank() == 1) {
                    throw std::runtime_error("no such file");
                }
            };
            ZeroStage<N> engine(communicator, parameters);
            auto const weights = engine.acquire(0);
        });
        CHECK(outcomes.ranks[1] == Outcome{"other", "no such file"});
        for (std::size_t const rank : {0U, 2U}) {
            CHECK(outcomes.ranks[rank].type == "Aborted");
            CHECK_THAT(outcomes.ranks[rank].message, contains_text("rank 1: no such file"));
        }
    });
}

} // namespace zero::test::sharded_initialisation_test
