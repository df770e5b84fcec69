#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/tiled_model.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <string>
#include <vector>

// A checkpoint contains no tiles: it holds one parameter with its name and shape.

namespace zero::test::checkpoint_tiles_test {

namespace {

using P = Parameters<bfloat16>;

using Shape = std::vector<std::size_t>;

template <class Stage>
std::vector<float> saved(int world, std::size_t count, std::filesystem::path const& folder,
                         Shape const& shape = {30, 11}) {
    return on_ranks<std::vector<float>>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, tiled_model<bfloat16>(count, shape));
        for (std::uint64_t step = 0; step < 2; ++step) {
            run_tiled_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
        }
        save_checkpoint(engine, folder, {.name = "state"});
        save_parameters(engine, folder / "weights.safetensors");
        return tiled_state(engine);
    })[0];
}

template <class Stage>
std::vector<float> loaded(int world, std::size_t count, std::filesystem::path const& folder,
                          Shape const& shape) {
    return on_ranks<std::vector<float>>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, tiled_model<bfloat16>(count, shape));
        load_checkpoint(engine, folder);
        return tiled_state(engine);
    })[0];
}

template <class Saves, class Loads>
void check(std::size_t from, std::size_t to, Shape const& shape = {30, 11}) {
    INFO(from << " tiles into " << to);
    TemporaryFolder const folder;
    auto const state = saved<Saves>(3, from, folder / "", shape);
    CHECK(loaded<Loads>(2, to, folder / "", shape) == state);
    auto const manifest = Manifest::read(folder / "state");
    CHECK(manifest.parameters.size() == 3);
    CHECK(manifest.parameters[1].name == "weight");
    CHECK(manifest.parameters[1].shape == std::vector<std::uint64_t>(shape.begin(), shape.end()));

    // a file of parameters is the same for all
    auto reader = CheckpointReader::of_file(folder / "weights.safetensors");
    std::size_t const elements = shape[0] * shape[1];
    std::vector<float> weights(elements);
    reader.read_parameter("weight", 0, weights);
    auto const begin = state.begin() + static_cast<std::ptrdiff_t>(40 + elements + 70 + 40);
    CHECK(weights // the master weights are after the parameters
          == std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(elements)));
}

} // namespace

TEST_CASE("A checkpoint of tiles is loaded as a whole parameter, in other tiles, and the reverse") {
    check<ZeroStage<3, P>, ZeroStage<1, P>>(3, no_tiles);
    check<ZeroStage<2, P>, ZeroStage<3, P>>(no_tiles, 4);
    check<ZeroStage<3, P>, ZeroStage<3, P>>(7, 2);
    check<ZeroStage<1, P, SplitMasterWeights>, ZeroStage<3, P, SplitMasterWeights>>(7, no_tiles);
    using Scaled = BlockScaledState<float16>;
    check<ZeroStage<3, P, Scaled>, ZeroStage<3, P, Scaled>>(6, 6, {32, 12});
    check<ZeroStage<3, P, Scaled>, ZeroStage<3, P, Scaled>>(6, 2, {32, 12});
    check<ZeroStage<3, P, Scaled>, ZeroStage<3, P, Scaled>>(3, no_tiles, {32, 12});
}

TEST_CASE("Tiles are initialised from a file by the name of their parameter") {
    TemporaryFolder const folder;
    auto const state = saved<ZeroStage<2, P>>(2, no_tiles, folder / "");
    auto const made = on_ranks<std::vector<float>>(3, [&](LoopbackCommunicator& communicator) {
        auto const reader = std::make_shared<CheckpointReader>(
            CheckpointReader::of_file(folder / "weights.safetensors"));
        Parameter<bfloat16> weight{.name = "weight",
                                   .initialise = initialise_from<bfloat16>(reader, "weight"),
                                   .is_deterministic = true};
        weight.shape = {30, 11};
        ZeroStage<3, P> engine(communicator, tiles(weight, 6));
        std::vector<float> values;
        for (auto const& tile : full_parameters(engine)) {
            values.insert(values.end(), tile.begin(), tile.end());
        }
        return values;
    });
    for (auto const& values : made) {
        CHECK(values == std::vector<float>(state.begin() + 40, state.begin() + 370));
    }
}

} // namespace zero::test::checkpoint_tiles_test
