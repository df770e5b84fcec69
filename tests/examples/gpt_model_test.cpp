#include "support/catch.hpp"

#include <gpt/host_model.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using Values = std::vector<std::vector<double>>;

constexpr gpt::Config tiny{.layers = 2, .width = 8, .heads = 2, .context = 5};
constexpr std::size_t batch = 2;

// Weights far from their initial values: zero biases and unit norms would hide errors in these
// terms.
template <class Stored>
std::vector<std::vector<Stored>> random_weights(gpt::Config const& config) {
    std::vector<std::vector<Stored>> weights;
    auto const list = gpt::parameters_of(config);
    for (std::size_t parameter = 0; parameter < list.size(); ++parameter) {
        auto& values = weights.emplace_back(list[parameter].elements);
        double const center =
            list[parameter].initialisation == gpt::Initialisation::ones ? 1.0 : 0.0;
        for (std::size_t element = 0; element < values.size(); ++element) {
            values[element] =
                gpt::narrow<Stored>(center + 0.3 * gpt::random_normal({99, parameter, element}));
        }
    }
    return weights;
}

std::vector<std::uint8_t> random_tokens(std::size_t count, std::uint64_t seed) {
    std::vector<std::uint8_t> tokens(count);
    for (std::size_t index = 0; index < count; ++index) {
        tokens[index] = static_cast<std::uint8_t>(gpt::random_below(256, {seed, index}));
    }
    return tokens;
}

struct Example {
    std::vector<std::uint8_t> tokens = random_tokens(batch * tiny.context, 1);
    std::vector<std::uint8_t> targets = random_tokens(batch * tiny.context, 2);
};

template <class Real, class Weights>
double loss_of(gpt::Model<Real>& model, Weights const& weights, Example const& example) {
    model.embedding_forward(weights, example.tokens);
    for (std::size_t layer = 0; layer < tiny.layers; ++layer) {
        model.block_forward(layer, weights);
    }
    model.device().clear_loss();
    model.head_forward(weights, example.targets);
    return model.device().loss();
}

template <class Real, class Weights, class Gradients>
double add_gradients(gpt::Model<Real>& model, Weights const& weights, Gradients& gradients,
                     Example const& example, Real loss_scale) {
    model.embedding_forward(weights, example.tokens);
    for (std::size_t layer = 0; layer < tiny.layers; ++layer) {
        model.block_forward(layer, weights);
    }
    model.device().clear_loss();
    model.head_forward_backward(weights, gradients, example.targets, loss_scale);
    for (std::size_t layer = tiny.layers; layer-- > 0;) {
        model.block_backward(layer, weights, gradients);
    }
    model.embedding_backward(gradients, example.tokens);
    return model.device().loss();
}

Values zeros_like(Values const& values) {
    Values zeros;
    for (auto const& parameter : values) {
        zeros.emplace_back(parameter.size(), 0.0);
    }
    return zeros;
}

} // namespace

TEST_CASE("The backward pass of every parameter agrees with central differences", "[gpt]") {
    gpt::Model<double> model(tiny, batch);
    Example const example;
    Values weights = random_weights<double>(tiny);
    Values gradients = zeros_like(weights);
    double const loss = add_gradients(model, weights, gradients, example, 1.0);
    CHECK(loss == loss_of(model, weights, example));

    auto const list = gpt::parameters_of(tiny);
    constexpr double step = 1e-5;
    for (std::size_t parameter = 0; parameter < list.size(); ++parameter) {
        double worst = 0.0;
        double largest = 0.0;
        std::size_t const stride = list[parameter].elements / 48 + 1;
        for (std::size_t element = 0; element < list[parameter].elements; element += stride) {
            double& value = weights[parameter][element];
            double const kept = value;
            value = kept + step;
            double const above = loss_of(model, weights, example);
            value = kept - step;
            double const below = loss_of(model, weights, example);
            value = kept;
            double const difference = (above - below) / (2.0 * step);
            worst = std::max(worst, std::abs(difference - gradients[parameter][element]));
            largest = std::max(largest, std::abs(difference));
        }
        INFO(list[parameter].name << ": largest gradient " << largest);
        CHECK(worst < 1e-8);
        // The bias of the keys shifts all scores of a row equally, so only the other two thirds of
        // qkv.bias have a gradient.
        CHECK(largest > 1e-4);
    }
}

TEST_CASE("Gradients are multiplied by the loss scale and added to those in memory", "[gpt]") {
    gpt::Model<double> model(tiny, batch);
    Example const example;
    Values const weights = random_weights<double>(tiny);
    Values once = zeros_like(weights);
    Values twice = zeros_like(weights);
    add_gradients(model, weights, once, example, 1.0);
    add_gradients(model, weights, twice, example, 8.0);
    add_gradients(model, weights, twice, example, 8.0);
    double worst = 0.0;
    for (std::size_t parameter = 0; parameter < weights.size(); ++parameter) {
        for (std::size_t element = 0; element < weights[parameter].size(); ++element) {
            worst = std::max(worst,
                             std::abs(twice[parameter][element] - 16.0 * once[parameter][element]));
        }
    }
    CHECK(worst < 1e-13);
}

TEST_CASE("The model computes in float as in double, up to rounding", "[gpt]") {
    gpt::Model<double> exact(tiny, batch);
    gpt::Model<float> rounded(tiny, batch);
    Example const example;
    Values const weights = random_weights<double>(tiny);
    Values expected = zeros_like(weights);
    Values found = zeros_like(weights);
    double const loss = add_gradients(exact, weights, expected, example, 1.0);
    CHECK(add_gradients(rounded, weights, found, example, 1.0F)
          == zero::test::Approx(loss).epsilon(1e-5));
    double worst = 0.0;
    for (std::size_t parameter = 0; parameter < weights.size(); ++parameter) {
        for (std::size_t element = 0; element < weights[parameter].size(); ++element) {
            worst =
                std::max(worst, std::abs(found[parameter][element] - expected[parameter][element]));
        }
    }
    CHECK(worst < 1e-5);
}

TEST_CASE("Two runs of the model over memory at other addresses give the same bits", "[gpt]") {
    Example const example;
    auto const weights = random_weights<float>(tiny);
    auto const run = [&](std::size_t shift) {
        std::vector<std::vector<float>> memory;
        std::vector<std::vector<float>> gradients;
        for (auto const& values : weights) {
            memory.emplace_back(shift, 0.0F)
                .insert(memory.back().end(), values.begin(), values.end());
            gradients.emplace_back(values.size() + shift, 0.0F);
        }
        auto const view = [&](std::size_t parameter) {
            return std::span<float const>(memory[parameter]).subspan(shift);
        };
        auto const target = [&](std::size_t parameter) {
            return std::span<float>(gradients[parameter]).subspan(shift);
        };
        gpt::Model<float> model(tiny, batch);
        double const loss = add_gradients(model, view, target, example, 1.0F);
        for (auto& values : gradients) {
            values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shift));
        }
        gradients.push_back({static_cast<float>(loss)});
        return gradients;
    };
    auto const first = run(0);
    CHECK(run(1) == first);
    CHECK(run(3) == first);
}

TEST_CASE("Weights in two bytes are computed with exactly, and their gradients are rounded once",
          "[gpt]") {
    Example const example;
    auto const stored = random_weights<zero::bfloat16>(tiny);
    std::vector<std::vector<float>> widened;
    std::vector<std::vector<float>> expected;
    std::vector<std::vector<zero::bfloat16>> found;
    for (auto const& values : stored) {
        auto& wide = widened.emplace_back();
        for (zero::bfloat16 const value : values) {
            wide.push_back(zero::to_float(value));
        }
        expected.emplace_back(values.size(), 0.0F);
        found.emplace_back(values.size());
    }
    gpt::Model<float> model(tiny, batch);
    double const loss = add_gradients(model, widened, expected, example, 1.0F);
    CHECK(add_gradients(model, stored, found, example, 1.0F) == loss);
    // The tied embedding gets two contributions and is rounded twice; every other parameter once.
    for (std::size_t parameter = 1; parameter < stored.size(); ++parameter) {
        std::size_t differences = 0;
        for (std::size_t element = 0; element < stored[parameter].size(); ++element) {
            differences += found[parameter][element]
                                   == zero::from_float<zero::bfloat16>(expected[parameter][element])
                               ? 0
                               : 1;
        }
        INFO("parameter " << parameter);
        CHECK(differences == 0);
    }
}

TEST_CASE("Attention does not look ahead", "[gpt]") {
    constexpr std::size_t context = 6;
    constexpr std::size_t width = 8;
    gpt::AttentionShape const shape{
        .batch = 1, .context = context, .heads = 2, .head_width = width / 2};
    gpt::Matrix<float> probabilities(shape.probability_rows(), context);
    gpt::Matrix<float> qkv(context, 3 * width);
    gpt::Matrix<float> before(context, width);
    gpt::Matrix<float> after(context, width);
    for (std::size_t row = 0; row < context; ++row) {
        for (std::size_t column = 0; column < 3 * width; ++column) {
            qkv.row(row)[column] = static_cast<float>(gpt::random_normal({7, row, column}));
        }
    }
    gpt::HostAttention<float>::forward(shape, qkv, probabilities.view(), before.view());
    constexpr std::size_t changed = 4;
    for (std::size_t column = 0; column < 3 * width; ++column) {
        qkv.row(changed)[column] += 1.0F;
    }
    gpt::HostAttention<float>::forward(shape, qkv, probabilities.view(), after.view());
    for (std::size_t row = 0; row < context; ++row) {
        bool const is_equal = std::equal(before.row(row), before.row(row) + width, after.row(row));
        CHECK(is_equal == (row < changed));
    }
}

TEST_CASE("Wrong sizes are refused with the numbers that disagree", "[gpt]") {
    gpt::Model<float> model(tiny, batch);
    auto weights = random_weights<float>(tiny);
    Example const example;
    CHECK_THROWS_WITH(model.embedding_forward(weights, std::span(example.tokens).first(9)),
                      zero::test::contains_text("10 tokens, not 9"));
    weights[1].pop_back();
    CHECK_THROWS_WITH(model.embedding_forward(weights, example.tokens),
                      zero::test::contains_text(
                          "parameter 1 has 40 elements, but the memory handed over has 39"));
}
