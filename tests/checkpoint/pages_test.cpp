#include "support/catch.hpp"
#include "support/page.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/comm/timed.hpp>
#include <zero/core/timeline.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/tiles.hpp>
#include <zero/zero.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

// Code that pages show indented, because no example has it: it is the text of this file.

namespace zero::test::pages_test {

namespace {

using Stage3 = ZeroStage<3, AdamW>;

std::size_t save_and_load(Stage3& engine) {
    zero::save_checkpoint(engine, "out", {.extras = {{"next_step", "1000"}}, .keep_last = 3});

    auto const report = zero::load_checkpoint(engine, "out");
    std::size_t const next_step = std::stoul(report.extras.at("next_step"));
    return next_step;
}

std::size_t count_rules() {
    zero::TensorRules const rules{
        {"wte", {"transformer.wte.weight"}},
        {.parameter = "h*.up.*", .tensors = {"transformer.h.*.mlp.c_fc.*"}, .is_transposed = true},
        {"h*.qkv.*", {"layers.*.q.*", "layers.*.k.*", "layers.*.v.*"}},
        {.parameter = "h*.gate", .tensors = {"h.*.gate_up"}, .part = {0, 1024}},
        {"", {"h.*.attn.bias"}}};
    return rules.size();
}

std::size_t print_gathers(Stage3& engine) {
    zero::TraceReport const& trace = engine.trace_report();
    for (zero::UnitGathers const& unit : trace.units)
        std::printf("%zu in time, %zu late, %zu resident, %zu dropped\n", unit.in_time, unit.late,
                    unit.resident, unit.dropped);
    std::printf("%zu gathers, at most %zu elements at once\n", trace.gathers,
                trace.most_live_elements);
    return trace.units.size();
}

std::size_t record(LoopbackCommunicator& loopback) {
    using Communicator = zero::Timed<zero::LoopbackCommunicator>;
    using Zero = zero::ZeroStage<2, zero::AdamW, Communicator>;

    std::vector<Zero::Registration> const parameters{{.name = "weight", .elements = 8}};
    Zero::Options const options{};
    zero::Timeline timeline(loopback.rank());
    Communicator communicator(loopback, &timeline);
    Zero engine(communicator, parameters, options);
    (void)engine.step_count();
    std::array<zero::Timeline*, 1> const ranks{engine.timeline()};
    zero::write_timelines("trace.json", ranks);
    return ranks.size();
}

/// A weight in 16 tiles, and one that is whole.
std::vector<Stage3::Registration> registrations() {
    Stage3::Registration const weight{.name = "embedding", .elements = 64};
    std::vector<Stage3::Registration> list;
    for (auto const& tile : zero::tiles(weight, 16)) list.push_back(tile);
    list.push_back({.name = "layer0.weight", .elements = 32, .units = {16}});
    return list;
}

std::size_t count_values(Stage3& engine) {
    auto const layer = zero::gather(engine, {"layer0.weight"}, zero::Gather::read);
    std::span<float const> const values = layer.values("layer0.weight");
    return values.size();
}

/// Makes a folder the current one for a moment.
struct InFolder {
    explicit InFolder(std::filesystem::path const& folder) { current_path(folder); }
    InFolder(InFolder const&) = delete;
    InFolder& operator=(InFolder const&) = delete;
    ~InFolder() { current_path(before); }

    std::filesystem::path before = std::filesystem::current_path();
};

} // namespace

TEST_CASE("Indented code of the pages is code of this test") {
    struct Shown {
        std::string page;
        std::size_t blocks; ///< those that are code come first
    };
    std::string const own = text_of("tests/checkpoint/pages_test.cpp");
    for (auto const& [page, blocks] :
         {Shown{"docs/checkpoints.md", 2}, Shown{"docs/options.md", 1},
          Shown{"docs/timeline.md", 1}, Shown{"docs/guides/large_model.md", 2}}) {
        auto const found = indented_blocks_of(page);
        INFO(page);
        REQUIRE(found.size() >= blocks);
        for (std::size_t block = 0; block < blocks; ++block) {
            INFO(found[block]);
            CHECK(is_excerpt(found[block], own));
        }
    }
    CHECK_FALSE(is_excerpt("auto const report = zero::load_checkpoint(engine);", own));
}

TEST_CASE("Indented code of the pages runs") {
    TemporaryFolder const folder;
    InFolder const here(folder.path());
    auto const ranks =
        on_ranks<std::vector<std::size_t>>(1, [](LoopbackCommunicator& communicator) {
            Stage3 engine(communicator, registrations());
            return std::vector{save_and_load(engine), count_rules(), print_gathers(engine),
                               record(communicator), count_values(engine)};
        });
    CHECK(ranks == std::vector<std::vector<std::size_t>>{{1000, 5, 17, 1, 32}});
    CHECK(std::filesystem::exists("trace.json"));
}

} // namespace zero::test::pages_test
