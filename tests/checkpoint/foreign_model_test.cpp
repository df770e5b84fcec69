#include "foreign_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Models of other programs, in any files and under any names.

namespace zero::test::foreign_model_test {

namespace {

using namespace foreign_model;

/// Loads a model with `load_parameters`, and while an engine is made; returns what is wrong.
template <int N, class T>
std::string load(RandomModel const& random, std::filesystem::path const& path, int world,
                 bool is_everywhere) {
    using Stage = ZeroStage<N, Parameters<T>>;
    Model const& model = random.model;
    auto const wrong = on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, model.parameters<T>());
        load_parameters(engine, path, model.rules, {.may_round = true});
        if (values_of(engine, model.names.size()) != model.values()) {
            return std::string("load_parameters");
        }
        auto const reader =
            std::make_shared<CheckpointReader>(CheckpointReader::of_file(path, model.rules));
        auto list = model.parameters<T>();
        for (auto& parameter : list) {
            parameter.initialise = initialise_from<T>(reader, parameter.name);
            parameter.is_deterministic = is_everywhere;
        }
        Stage made(communicator, list);
        return std::string(values_of(made, model.names.size()) != model.values() ? "initialise_from"
                                                                                 : "");
    });
    for (std::string const& text : wrong) {
        if (!text.empty()) {
            return text;
        }
    }
    return {};
}

} // namespace

TEST_CASE("Tensors that are renamed, joined, cut and transposed load into every stage") {
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
        TemporaryFolder const folder;
        RandomModel random(seed);
        random.write(folder.path());
        int const world = std::vector{1, 2, 3, 5}[random.pick(4)];
        auto const path = seed % 2 == 0 ? folder.path() : folder / "model.safetensors.index.json";
        bool const is_everywhere = random.pick(2) != 0;
        INFO("seed " << seed << ", " << world << " ranks");
        CHECK(load<0, float>(random, path, world, is_everywhere).empty());
        CHECK(load<1, float16>(random, path, world, is_everywhere).empty());
        CHECK(load<2, float>(random, path, world, is_everywhere).empty());
        CHECK(load<3, bfloat16>(random, path, world, is_everywhere).empty());
    }
}

} // namespace zero::test::foreign_model_test
