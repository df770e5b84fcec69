#include "policy/worked_example_fixture.hpp"

#include "support/page.hpp"
#include "support/shipped_policies.hpp"

// The worked example of docs/adding_a_policy.md conforms and trains, and the page shows its text.

namespace zero::test::worked_example_test {

namespace {

constexpr char const* page = "docs/adding_a_policy.md";

} // namespace

TEST_CASE("The worked example conforms") {
    check_loss_scaler<CautiousLossScaler>();
}

TEST_CASE("The worked example follows its rule") {
    CautiousLossScalerOptions const options{
        .initial_scale = 8.0F, .patience = 2, .most_patience = 5};
    // Two clean steps double the scale. After an overflow, four are needed, then five.
    CHECK((scales_of<CautiousLossScaler>(CautiousLossScaler::initial(options), "..x....xx.....",
                                         options)
           == std::vector<float>{8, 8, 16, 8, 8, 8, 8, 16, 8, 4, 4, 4, 4, 4}));
    auto state = CautiousLossScaler::initial(options);
    for (int overflow = 0; overflow < 3; ++overflow) {
        CHECK_FALSE(CautiousLossScaler::is_exhausted(state, options));
        state = CautiousLossScaler::next(state, true, options);
    }
    CHECK(CautiousLossScaler::is_exhausted(state, options));
}

TEST_CASE("Parameters in float16 train with the worked example to the same bits in every stage") {
    auto const run = []<int N>(CautiousLossScalerOptions const& scaler) {
        return on_ranks<std::vector<std::vector<float>>>(
            2, [&](LoopbackCommunicator& communicator) {
                ZeroStage<N, Parameters<float16>, CautiousLossScaler> engine(
                    communicator, registration<float16>(toy_specs()),
                    {.loss_scaler = scaler,
                     .reduction = {.schedule = ReductionSchedule::boundary}});
                for (std::uint64_t step = 0; step < 6; ++step) {
                    (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step,
                                   2);
                }
                auto seen = full_parameters(engine);
                seen.push_back(
                    {static_cast<float>(engine.step_count()), engine.loss_scaler_state().scale});
                return seen;
            })[0];
    };
    CautiousLossScalerOptions const options{
        .initial_scale = 0x1p18F, .patience = 2}; // too large: noise of up to 1 becomes infinite
    auto const expected = run.operator()<0>(options);
    CHECK(expected.back()[0] < 6.0F); // some step was skipped
    CHECK(expected.back()[0] > 0.0F); // and some was not
    CHECK((run.operator()<1>(options) == expected));
    CHECK((run.operator()<2>(options) == expected));
    CHECK((run.operator()<3>(options) == expected));
    CHECK_FALSE((run.operator()<0>({.initial_scale = 0x1p12F}) == expected));
}

TEST_CASE("The code blocks of the page are the text of the worked example and its fixture") {
    std::string const sources = text_of("tests/policy/worked_example.hpp")
                                + text_of("tests/policy/worked_example_fixture.hpp");
    auto const blocks = blocks_of(page, "cpp");
    REQUIRE(blocks.size() >= 2);
    std::string shown;
    for (std::string const& block : blocks) {
        INFO(block);
        CHECK(sources.find(block) != std::string::npos);
        shown += block;
    }
    CHECK(shown.find("static_assert(zero::LossScaler<CautiousLossScaler>);")
          != std::string::npos); // to the end of the example
}

TEST_CASE("The page names files that exist and every category") {
    std::string const text = text_of(page);
    for (char const* category :
         {"ParametersCategory", "PartitionerCategory", "BucketerCategory", "CommunicatorCategory",
          "LossScalerCategory", "MasterWeightsCategory", "OptimizerCategory",
          "OptimizerStateCategory", "GradientReductionCategory"}) {
        INFO(category);
        CHECK(text.find("`" + std::string(category) + "`") != std::string::npos);
    }
    std::size_t files = 0;
    for (char const* folder : {"`zero/", "`tests/"}) {
        for (std::size_t at = text.find(folder); at != std::string::npos;
             at = text.find(folder, at + 1)) {
            std::string const path = text.substr(at + 1, text.find('`', at + 1) - at - 1);
            INFO(path);
            CHECK(std::ifstream(ZERO_SOURCE_DIR + std::string(path[0] == 'z' ? "/include/" : "/")
                                + path)
                      .good());
            ++files;
        }
    }
    CHECK(files >= 18);
}

} // namespace zero::test::worked_example_test
