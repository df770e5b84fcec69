#define EIGEN_NO_CUDA // Eigen multiplies on the host alone, whichever compiler this is

#include "support/catch.hpp"

#include "cuda/device.hpp"

#include <gpt/cuda/cuda_device.cuh>
#include <gpt/host_model.hpp>

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/cuda/owned_stream.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

// Compares the kernels of the training example, and the model that calls them, with the same model
// on the host.

namespace zero::test::gpt_model_test {

namespace {

constexpr gpt::Config config{.layers = 2, .width = 48, .heads = 3, .context = 7};
constexpr std::size_t batch = 3;

template <class T>
using Values = std::vector<std::vector<T>>;

/// Values far from the initial ones: with biases of zero and norms of one, errors in these terms
/// would stay hidden.
template <class T>
Values<T> random_values(std::uint64_t seed, double deviation) {
    Values<T> values;
    auto const list = gpt::parameters_of(config);
    for (std::size_t parameter = 0; parameter < list.size(); ++parameter) {
        double const center =
            list[parameter].initialisation == gpt::Initialisation::ones ? 1.0 : 0.0;
        auto& value = values.emplace_back(list[parameter].elements);
        for (std::size_t element = 0; element < value.size(); ++element) {
            value[element] =
                gpt::narrow<T>(center + deviation * gpt::random_normal({seed, parameter, element}));
        }
    }
    return values;
}

std::string text_of(std::size_t bytes) {
    std::string text;
    for (std::size_t index = 0; index < bytes; ++index) {
        text += static_cast<char>(gpt::random_below(256, {3, index}));
    }
    return text;
}

/// Runs one forward and backward pass, which adds to the gradients.
template <class Model, class Weights, class Gradients, class Batch>
void run(Model& model, Weights const& weights, Gradients&& gradients, Batch const& samples,
         typename std::remove_reference_t<decltype(model.device())>::Scale scale) {
    model.embedding_forward(weights, samples.tokens());
    for (std::size_t layer = 0; layer < config.layers; ++layer) {
        model.block_forward(layer, weights);
    }
    model.head_forward_backward(weights, gradients, samples.targets(), scale);
    for (std::size_t layer = config.layers; layer-- > 0;) {
        model.block_backward(layer, weights, gradients);
    }
    model.embedding_backward(gradients, samples.tokens());
}

template <class T>
struct Result {
    double loss = 0.0;
    Values<T> gradients;
};

constexpr float loss_scale = 4.0F;

template <class T>
Result<T> on_the_host(Values<T> const& weights, Values<T> const& gradients, gpt::Text const& text,
                      gpt::SamplePositions const& positions) {
    Result<T> result{0.0, gradients};
    gpt::Model<double> model(config, batch); // kernels cannot have the packs of floats
    gpt::Batch samples(batch, config.context);
    samples.fill(text.training(), positions);
    run(model, weights, result.gradients, samples, loss_scale);
    result.loss = model.device().loss();
    return result;
}

template <class T>
Result<T> on_the_device(Values<T> const& weights, Values<T> const& gradients, gpt::Text const& text,
                        gpt::SamplePositions const& positions) {
    zero::cuda::OwnedStream const stream;
    std::vector<DeviceArray<T>> device_weights;
    std::vector<DeviceArray<T>> device_gradients;
    for (std::size_t parameter = 0; parameter < weights.size(); ++parameter) {
        device_weights.emplace_back(weights[parameter]);
        device_gradients.emplace_back(gradients[parameter]);
    }
    DeviceArray<float> const scale(std::vector<float>{loss_scale});
    gpt::ModelOn<gpt::CudaDevice> model(config, batch,
                                        gpt::CudaDevice(stream.get(), batch * config.context));
    gpt::CudaText const device_text = model.device().place(text);
    gpt::CudaBatch samples = model.device().batch(batch, config.context);
    samples.fill(device_text.training(), positions);
    auto const weight = [&](std::size_t parameter) {
        return std::span<T const>(device_weights[parameter].data(),
                                  device_weights[parameter].size());
    };
    auto const gradient = [&](std::size_t parameter) {
        return std::span<T>(device_gradients[parameter].data(), device_gradients[parameter].size());
    };
    run(model, weight, gradient, samples, scale.data());
    Result<T> result{model.device().loss(), {}};
    for (auto const& values : device_gradients) {
        result.gradients.push_back(on_host(values));
    }
    return result;
}

/// The largest difference between gradients, relative to the largest gradient of the parameter.
template <class T>
double largest_difference(Result<T> const& a, Result<T> const& b) {
    double worst = 0.0;
    for (std::size_t parameter = 0; parameter < a.gradients.size(); ++parameter) {
        double difference = 0.0;
        double largest = 0.0;
        for (std::size_t element = 0; element < a.gradients[parameter].size(); ++element) {
            auto const x = gpt::widen<double>(a.gradients[parameter][element]);
            auto const y = gpt::widen<double>(b.gradients[parameter][element]);
            difference = std::isfinite(x) && std::isfinite(y)
                             ? std::max(difference, std::abs(x - y))
                             : INFINITY;
            largest = std::max(largest, std::abs(x));
        }
        worst = std::max(worst, difference / largest);
    }
    return worst;
}

} // namespace

TEMPLATE_TEST_CASE(
    "The model of cuda_train_gpt gives the loss and the gradients of the host's model", "[cuda]",
    float, zero::bfloat16) {
    gpt::Text const text(text_of(400), config.context);
    auto const positions =
        gpt::SamplePositions::drawn(text.training().size(), config.context, 1, 2, 3, 4);
    auto weights = random_values<TestType>(99, 0.3);
    auto const gradients = random_values<TestType>(5, 0.1); // the backward pass adds to these
    auto const expected = on_the_host(weights, gradients, text, positions);
    auto const found = on_the_device(weights, gradients, text, positions);
    double const tolerance = std::is_same_v<TestType, float> ? 2e-5 : 1e-2;
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-5));
    CHECK(largest_difference(expected, found) < tolerance);

    // Control: the comparison detects each of these changes.
    auto const other =
        gpt::SamplePositions::drawn(text.training().size(), config.context, 1, 2, 3, 5);
    CHECK(largest_difference(expected, on_the_device(weights, gradients, text, other))
          > 2 * tolerance);
    std::size_t const bias = gpt::block_parameter_index(1, gpt::BlockParameter::up_bias);
    weights[bias][0] = gpt::narrow<TestType>(gpt::widen<float>(weights[bias][0]) + 0.5F);
    CHECK(largest_difference(expected, on_the_device(weights, gradients, text, positions))
          > 2 * tolerance);
}

TEST_CASE("Two passes of cuda_train_gpt's model give the same bits", "[cuda]") {
    gpt::Text const text(text_of(400), config.context);
    auto const positions =
        gpt::SamplePositions::spread(text.training().size(), config.context, batch, 0, 1);
    auto const weights = random_values<float>(99, 0.3);
    auto const gradients = random_values<float>(5, 0.1);
    auto const first = on_the_device(weights, gradients, text, positions);
    auto const second = on_the_device(weights, gradients, text, positions);
    CHECK(first.loss == second.loss);
    CHECK(first.gradients == second.gradients);
}

} // namespace zero::test::gpt_model_test
