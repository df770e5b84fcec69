#include "support/catch.hpp"
#include "support/limited_memory.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/trained.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/ops/counter_random.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <vector>

// A model that is eight times as large as the memory of one rank allows is initialised, trained and
// evaluated on eight ranks. No rank ever holds more than its shard and two layers.

namespace zero::test::limited_memory_test {

namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t layer_elements = 4352 + 37;

/// Returns layers of equal size, each a unit of its own.
std::vector<ParameterSpec> layers(std::size_t count) {
    std::vector<ParameterSpec> specs;
    for (std::size_t layer = 0; layer < count; ++layer) {
        std::string const name = "layer" + std::to_string(layer);
        specs.push_back({name + ".weight", 4352, {layer}});
        specs.push_back({name + ".bias", 37, {layer}});
    }
    return specs;
}

struct Result {
    Trained trained;
    std::vector<float> evaluated;
    std::size_t most = 0;  ///< largest number of bytes that the rank held at a time
    std::size_t asked = 0; ///< elements that the rank computed as initial values
};

/// Trains three steps and evaluates, with the same limit for every rank.
template <class Stage>
std::vector<Result> train(int world, std::size_t count, std::size_t limit) {
    auto const specs = layers(count);
    return on_ranks<Result>(world, [&](LoopbackCommunicator& communicator) {
        LimitedMemory memory(limit);
        Result result;
        auto parameters = registration<float>(specs);
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            parameters[p].is_deterministic = true;
            parameters[p].initialise = [p, &result](std::size_t begin, std::span<float> values) {
                result.asked += values.size();
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = ops::uniform(ops::random_key(1, p), begin + i) - 0.5F;
                }
            };
        }
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        {
            Stage engine(communicator, parameters, {.memory = &memory});
            for (std::uint64_t step = 0; step < 3; ++step) {
                (void)run_step(engine, rank, step);
            }
            for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
                auto const weights = engine.acquire(unit);
                float sum = 0.0F;
                for (float const value : weights[2 * unit]) {
                    sum += value;
                }
                result.evaluated.push_back(sum);
            }
            result.trained.resize(specs);
            result.trained.parameters = full_parameters(engine);
            engine.for_each_owned_slice([&](auto const& slice) { result.trained.add(slice); });
        }
        result.most = memory.most();
        return result;
    });
}

template <class Stage>
std::size_t most_bytes(int world, std::size_t count) {
    std::size_t most = 0;
    for (Result const& rank : train<Stage>(world, count, no_limit)) {
        most = rank.most > most ? rank.most : most;
    }
    return most;
}

template <class Stage>
Outcome outcome(int world, std::size_t count, std::size_t limit) {
    return outcome_of([&] { (void)train<Stage>(world, count, limit); });
}

Trained joined(std::vector<Result> const& ranks) {
    std::vector<Trained> states;
    for (Result const& rank : ranks) {
        states.push_back(rank.trained);
    }
    return Trained::joined(states);
}

template <class Stage>
void check_trains(int world, std::size_t limit) {
    INFO("W = " << world);
    auto const limited = train<Stage>(world, 24, limit);
    auto const replicated = train<ZeroStage<0>>(world, 24, no_limit);
    CHECK((joined(limited) == joined(replicated)));
    std::size_t asked = 0;
    for (std::size_t rank = 0; rank < limited.size(); ++rank) {
        CHECK(limited[rank].evaluated == replicated[rank].evaluated);
        CHECK(limited[rank].most <= limit);
        CHECK(limited[rank].asked < 4 * layer_elements);
        asked += limited[rank].asked;
    }
    CHECK(asked == 24 * layer_elements);
}

} // namespace

TEST_CASE(
    "A model of eight times the parameters that the memory of one rank allows trains on eight "
    "ranks, and on nine with uneven shards") {
    // One rank alone holds at most three layers: a fourth does not fit.
    std::size_t const limit = most_bytes<ZeroStage<3>>(1, 3) * 9 / 8;
    CHECK(outcome<ZeroStage<3>>(1, 3, limit).type == "returned");
    CHECK(outcome<ZeroStage<3>>(1, 4, limit) == Outcome{"other", std::bad_alloc().what()});

    check_trains<ZeroStage<3>>(8, limit);
    check_trains<ZeroStage<3>>(9, limit);
    check_trains<ZeroStage<3, BalancedPartitioner>>(9, limit); // whole tensors: two or three a rank

    // Fewer ranks, or another stage, need more.
    CHECK(outcome<ZeroStage<3>>(4, 24, limit).type == "other");
    CHECK(outcome<ZeroStage<2>>(8, 24, limit).type == "other");
}

} // namespace zero::test::limited_memory_test
