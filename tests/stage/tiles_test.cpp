#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/tiled_model.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/ops/muon.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/tiles.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// One parameter in several units: trained like the whole, a tile at a time.

namespace zero::test::tiles_test {

namespace {

std::vector<std::string> names(std::vector<Parameter<float>> const& list) {
    std::vector<std::string> all;
    for (auto const& parameter : list) {
        all.push_back(parameter.name);
    }
    return all;
}

std::vector<std::vector<std::size_t>> shapes(std::vector<Parameter<float>> const& list) {
    std::vector<std::vector<std::size_t>> all;
    for (auto const& parameter : list) {
        all.push_back(parameter.shape);
    }
    return all;
}

Parameter<float> shaped(std::vector<std::size_t> const& shape) {
    Parameter<float> parameter;
    parameter.name = "w";
    parameter.shape = shape;
    parameter.units = {3};
    return parameter;
}

} // namespace

TEST_CASE("Tiles are cut between rows of the first dimensions that divide evenly") {
    using Shapes = std::vector<std::vector<std::size_t>>;
    auto const even = tiles(shaped({8, 6}), 4);
    CHECK(names(even) == std::vector<std::string>{"w[0:12]", "w[12:24]", "w[24:36]", "w[36:48]"});
    CHECK(shapes(even) == Shapes{{2, 6}, {2, 6}, {2, 6}, {2, 6}});
    CHECK(even[3].units == std::vector<std::size_t>{6});
    CHECK(even[3].tile == Tile{"w", 36, 48, {8, 6}});
    // {splits, out, in / splits}: cut along inputs and outputs
    CHECK(shapes(tiles(shaped({2, 4, 3}), 4)) == Shapes{{2, 3}, {2, 3}, {2, 3}, {2, 3}});
    CHECK(shapes(tiles(shaped({5, 3}), 2)) == Shapes{{2, 3}, {3, 3}});
    auto flat = shaped({});
    flat.elements = 7;
    CHECK(names(tiles(flat, 3)) == std::vector<std::string>{"w[0:2]", "w[2:4]", "w[4:7]"});
    CHECK(shapes(tiles(flat, 3)) == Shapes{{}, {}, {}});
    auto placed = shaped({2, 2});
    placed.units = {5, 1};
    CHECK(tiles(placed, 2)[1].units == std::vector<std::size_t>{1});
}

TEST_CASE("Tiles point to their part of the parameter") {
    std::array<float, 6> data{};
    auto whole = shaped({3, 2});
    whole.data = data.data();
    whole.initialise = [](std::size_t begin, std::span<float> values) {
        values[0] = static_cast<float>(begin);
    };
    auto const list = tiles(whole, 3);
    CHECK(list[2].data == data.data() + 4);
    std::array<float, 1> value{};
    list[2].initialise(1, value);
    CHECK(value[0] == 5.0F);
}

namespace {

template <class Stage>
std::vector<float> trained(std::size_t count, std::vector<std::size_t> const& shape = {30, 11}) {
    using T = typename Stage::ParameterType;
    return on_ranks<std::vector<float>>(3, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, tiled_model<T>(count, shape), {.gradient_clipping = 1.0F});
        for (std::uint64_t step = 0; step < 3; ++step) {
            run_tiled_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
        }
        return tiled_state(engine);
    })[1];
}

template <class Stage>
void check_bits() {
    auto const whole = trained<Stage>(no_tiles);
    CHECK(whole.size() > 440 * 2);
    for (std::size_t const count : {1U, 3U, 7U}) {
        INFO(count << " tiles");
        CHECK(trained<Stage>(count) == whole);
    }
}

} // namespace

TEST_CASE("A parameter in tiles trains to the bits of the whole in every stage") {
    in_every_stage([]<int N>() {
        check_bits<ZeroStage<N>>();
        check_bits<ZeroStage<N, Parameters<bfloat16>, StochasticRounding>>();
        check_bits<ZeroStage<N, OptimizerState<bfloat16>>>();
    });
}

TEST_CASE("Tiles of any size train to the bits of the whole with block-scaled states, or are "
          "refused because they cut a block") {
    std::size_t refused = 0;
    std::size_t compared = 0;
    for (auto const& shape : std::vector<std::vector<std::size_t>>{
             {30, 11}, {24, 16}, {12, 32}, {9, 64}, {5, 100}, {640}, {2, 5, 64}}) {
        auto const whole = trained<ZeroStage<2, BlockScaledState<float16>>>(no_tiles, shape);
        for (std::size_t count = 1; count <= 10 && count <= shape.front() * shape.back(); ++count) {
            CAPTURE(shape, count);
            std::size_t cuts = 0;
            for (auto const& tile : tiles(shaped(shape), count)) {
                cuts += tile.tile.begin % 64 == 0 ? 0 : 1;
            }
            auto const run = [&](auto stage) {
                std::vector<float> state;
                auto const seen = outcome_of(
                    [&] { state = trained<typename decltype(stage)::type>(count, shape); });
                if (cuts == 0) {
                    CHECK(seen == Outcome{});
                    CHECK(state == whole);
                    ++compared;
                } else {
                    CHECK(seen.type == "InvalidArgument");
                    CHECK_THAT(seen.message, contains_text("begins inside a block of 64 elements "
                                                           "of 'weight'"));
                    ++refused;
                }
            };
            run(std::type_identity<ZeroStage<0, BlockScaledState<float16>>>{});
            run(std::type_identity<ZeroStage<2, BlockScaledState<float16>>>{});
            run(std::type_identity<ZeroStage<3, BlockScaledState<float16>>>{});
        }
    }
    CHECK(compared >= 80);
    CHECK(refused >= 60);
}

TEST_CASE("The norm of a parameter in tiles is that of the whole") {
    in_every_stage([]<int N>() {
        auto const norms = [](std::size_t count) {
            return on_ranks<std::vector<double>>(3, [&](LoopbackCommunicator& communicator) {
                ZeroStage<N> engine(communicator, tiled_model<float>(count));
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_tiled_micro_step(engine, static_cast<std::uint64_t>(communicator.rank()),
                                         0);
                }
                auto const found = engine.gradient_norms(NormKind::l2, NormScope::parameters);
                engine.cancel_step();
                return found;
            })[0];
        };
        auto const whole = norms(no_tiles);
        CHECK(norms(3) == std::vector<double>{whole[0], whole[1], whole[1], whole[1], whole[2]});
        CHECK(whole[0] != whole[1]);
    });
}

TEST_CASE("Stage 3 needs memory for tiles instead of the whole parameter") {
    auto const leases = [](std::size_t count) {
        return on_ranks<std::size_t>(2, [&](LoopbackCommunicator& communicator) {
            ZeroStage<3> engine(communicator, tiled_model<float>(count));
            return engine.memory_plan()[BufferKind::parameter_leases].content_bytes;
        })[0];
    };
    CHECK(leases(no_tiles) == 4 * (384 + 128)); // the matrix and its neighbour, padded
    CHECK(leases(10) == 4 * (128 + 128));       // a tile and its neighbour
}

TEST_CASE("A parameter in tiles is gathered and written by its name") {
    in_every_stage([]<int N>() {
        auto const ranks = on_ranks<std::vector<float>>(3, [](LoopbackCommunicator& communicator) {
            ZeroStage<N, Parameters<bfloat16>> engine(communicator, tiled_model<bfloat16>(7));
            auto weights = gather(engine, {"last", "weight"}, Gather::one_rank_writes, 2);
            std::vector<float> seen(weights.values("weight").begin(),
                                    weights.values("weight").end());
            for (float& value : weights.writable("weight")) {
                value = static_cast<float>(communicator.rank() + 1);
            }
            weights.writable(2)[0] = 8.0F; // element 0 of the second tile
            weights.commit();
            auto const written = gather(engine, {"weight"});
            seen.insert(seen.end(), written.values("weight").begin(),
                        written.values("weight").end());
            return seen;
        });
        std::vector<float> expected;
        for (std::size_t i = 0; i < 330; ++i) {
            expected.push_back(to_float(from_float<bfloat16>(noise(1, 30, i))));
        }
        expected.insert(expected.end(), 330, 3.0F);
        expected[330 + 4 * 11] = 8.0F; // 30 rows in 7 tiles: the first one has 4
        for (auto const& seen : ranks) {
            CHECK(seen == expected);
        }
    });
}

TEST_CASE("One tile is the parameter itself, under every name and with every optimizer") {
    auto whole = shaped({4, 3});
    whole.update = Update::matrix; // Muon asks for the choice
    auto const one = tiles(whole, 1);
    CHECK(names(one) == std::vector<std::string>{"w"});
    CHECK(shapes(one) == shapes({whole}));
    CHECK(one[0].tile == Tile{});
    CHECK(one[0].units == whole.units);
    auto const seen = on_ranks<std::vector<float>>(2, [&](LoopbackCommunicator& communicator) {
        ZeroStage<1, Muon, BalancedPartitioner> engine(communicator, one);
        auto weights = gather(engine, {"w"}, Gather::all_write_equally);
        std::fill_n(weights.writable("w").begin(), 12, 5.0F);
        weights.commit();
        auto const written = gather(engine, {"w"});
        return std::vector<float>(written.values("w").begin(), written.values("w").end());
    });
    CHECK(seen[1] == std::vector<float>(12, 5.0F));
}

namespace {

template <class Stage = ZeroStage<3>>
Outcome outcome(std::vector<Parameter<float>> const& list) {
    return on_ranks<Outcome>(1, [&](LoopbackCommunicator& communicator) {
        return outcome_of([&] { Stage engine(communicator, list); });
    })[0];
}

} // namespace

TEST_CASE("Tiles that do not form a parameter are refused") {
    CHECK_THAT(outcome_of([] {
                   (void)tiles(shaped({2, 2}), 0);
               }).message,
               contains_text("cannot be cut into 0 tiles"));
    CHECK_THAT(outcome_of([] {
                   (void)tiles(shaped({2, 2}), 5);
               }).message,
               contains_text("of 4 elements cannot be cut into 5 tiles"));
    auto two_units = shaped({2, 2});
    two_units.units = {1, 2};
    CHECK_THAT(outcome_of([&] { (void)tiles(two_units, 4); }).message,
               contains_text("in 4 tiles lists 2 units"));

    auto const list = tiled_model<float>(3);
    CHECK(outcome(list) == Outcome{});
    auto const refused = [](std::vector<Parameter<float>> const& wrong) {
        auto const seen = outcome(wrong);
        CHECK(seen.type == "InvalidArgument");
        CHECK_THAT(seen.message, contains_text("is no tile between its neighbours"));
    };
    auto swapped = list;
    std::swap(swapped[1], swapped[2]);
    refused(swapped);
    auto short_of_one = list;
    short_of_one.erase(short_of_one.begin() + 3);
    refused(short_of_one);
    auto other_group = list;
    other_group[2].group = 1;
    refused(other_group);
    auto frozen = list;
    frozen[3].trainable = false;
    refused(frozen);
    auto same_name = list;
    same_name[4].name = "weight";
    CHECK_THAT(outcome(same_name).message, contains_text("two parameters are named 'weight'"));
}

TEST_CASE("Tiles of a parameter that begins inside a block of an adopted block are refused with "
          "block-scaled states") {
    std::vector<float> block(40 + 640);
    auto const adopted = [&](std::size_t first) {
        auto before = shaped({first});
        before.name = "before";
        before.units = {0};
        before.data = block.data();
        auto whole = shaped({640});
        whole.data = block.data() + first;
        std::vector<Parameter<float>> list{before};
        for (auto const& tile : tiles(whole, 10)) {
            list.push_back(tile);
        }
        return on_ranks<Outcome>(1, [&](LoopbackCommunicator& communicator) {
            return outcome_of([&] {
                ZeroStage<2, BlockScaledState<float16>> engine(
                    communicator, list,
                    {.storage = Storage::adopted,
                     .adopted_block = std::span<float>(block.data(), first + 640)});
            });
        })[0];
    };
    CHECK_THAT(adopted(40).message, contains_text("'w[64:128]' begins at element 104 of the "
                                                  "adopted block"));
    block.resize(64 + 640);
    CHECK(adopted(64) == Outcome{});
}

TEST_CASE("An optimizer of whole parameters refuses tiles") {
    auto const seen = outcome<ZeroStage<1, Muon, BalancedPartitioner>>(tiled_model<float>(3));
    CHECK(seen.type == "InvalidArgument");
    CHECK_THAT(seen.message, contains_text("parameter 'weight' is registered in tiles"));
}

} // namespace zero::test::tiles_test
