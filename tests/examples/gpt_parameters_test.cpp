#include "support/catch.hpp"

#include <gpt/elementary.hpp>
#include <gpt/parameters.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <zero/host/detail/squares_avx2.hpp>

TEST_CASE("Parameters are listed in the order of the forward pass with the units that use them",
          "[gpt]") {
    gpt::Config const config{.layers = 2, .width = 32, .heads = 2, .context = 16};
    auto const list = gpt::parameters_of(config);
    REQUIRE(list.size() == 28);
    CHECK(list[gpt::token_embedding_index].name == "wte");
    CHECK(list[gpt::token_embedding_index].elements == 256 * 32);
    CHECK(list[gpt::token_embedding_index].units == std::vector<std::size_t>{0, 3});
    CHECK(list[gpt::position_embedding_index].elements == 16 * 32);
    auto const& qkv = list[gpt::block_parameter_index(1, gpt::BlockParameter::qkv_weight)];
    CHECK(qkv.name == "block1.qkv.weight");
    CHECK(qkv.elements == 32 * 96);
    CHECK(qkv.units == std::vector<std::size_t>{2});
    CHECK(list[gpt::final_norm_bias_index(config)].name == "lnf.bias");

    std::size_t total = 0;
    for (auto const& parameter : list) {
        total += parameter.elements;
    }
    CHECK(total == 256 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32);
}

TEST_CASE("Initial values depend on seed, parameter and place only", "[gpt]") {
    gpt::Config const config{.layers = 8, .width = 32, .heads = 2, .context = 16};
    auto const list = gpt::parameters_of(config);
    std::vector<float> values(list[0].elements);
    gpt::initialise(list[0], 0, 5, 0, std::span(values));
    CHECK(values[77] == gpt::initial_value(list[0], 0, 77, 5));
    CHECK(values[77] != gpt::initial_value(list[0], 0, 77, 6));
    CHECK(values[77] != gpt::initial_value(list[0], 1, 77, 5));

    auto const deviation_of = [&](std::size_t parameter) {
        double sum = 0.0;
        double squares = 0.0;
        auto const count = static_cast<double>(list[parameter].elements);
        for (std::size_t element = 0; element < list[parameter].elements; ++element) {
            double const value = gpt::initial_value(list[parameter], parameter, element, 5);
            sum += value;
            squares += value * value;
        }
        CHECK(std::abs(sum / count) < 4.0 * 0.02 / std::sqrt(count));
        return std::sqrt(squares / count);
    };
    CHECK(deviation_of(0) == zero::test::Approx(0.02).epsilon(0.03));
    // 1 / sqrt(2 * 8 layers) = 1/4 of the others
    std::size_t const down = gpt::block_parameter_index(3, gpt::BlockParameter::down_weight);
    CHECK(deviation_of(down)
          == zero::test::Approx(0.005).epsilon(0.05)); // more than 4 deviations of this estimate
    CHECK(gpt::initial_value(list[gpt::final_norm_weight_index(config)],
                             gpt::final_norm_weight_index(config), 3, 5)
          == 1.0F);
    CHECK(gpt::initial_value(list[gpt::final_norm_bias_index(config)],
                             gpt::final_norm_bias_index(config), 3, 5)
          == 0.0F);
}

TEST_CASE("A width that heads cannot share is refused", "[gpt]") {
    CHECK(gpt::make_config(2, 64, 64).heads == 2);
    CHECK(gpt::make_config(2, 48, 64).heads == 3);
    CHECK_THROWS_WITH(gpt::make_config(2, 50, 64),
                      zero::test::contains_text("multiple of 16, but is 50"));
    CHECK_THROWS_WITH(gpt::make_config(0, 64, 64), zero::test::contains_text("at least 1"));
}

TEST_CASE("The exponential is exact to a few units in the last place and keeps a NaN", "[gpt]") {
    double worst = 0.0;
    std::size_t count = 0;
    for (double value = -86.9; value < 88.0; value += 0.00371) {
        auto const argument = static_cast<float>(value);
        double const exact = std::exp(static_cast<double>(argument));
        worst = std::max(
            worst, std::abs(static_cast<double>(gpt::exponential(gpt::Float4{argument})[0]) - exact)
                       / exact);
        ++count;
    }
    CHECK(count > 40000);
    CHECK(worst < 3.0 * 0x1.0p-23);
    CHECK(gpt::exponential(gpt::Float4{})[0] == 1.0F);
    CHECK(gpt::exponential(gpt::Float4{-std::numeric_limits<float>::infinity()})[0] < 1e-37F);
    CHECK(std::isnan(gpt::exponential(gpt::Float4{std::numeric_limits<float>::quiet_NaN()})[0]));
}
