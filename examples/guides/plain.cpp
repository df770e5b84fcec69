// A plain training loop: layers, a backward pass by hand, AdamW, one process.
// docs/guides/existing_trainer.md starts from here.

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

constexpr std::size_t width = 32, depth = 3, batch = 16, steps = 300;

struct Tensor {
    std::vector<float> value, gradient;
    explicit Tensor(std::size_t elements) : value(elements), gradient(elements) {}
};

struct Layer {
    Tensor weight{width * width}, bias{width};
};

using Batch = std::vector<float>; // samples of `width` numbers each
using Values = std::span<float const>;

/// y = x + tanh(weight x + bias), sample by sample.
Batch forward(Values weight, Values bias, Batch const& x) {
    Batch y = x;
    for (std::size_t i = 0; i < y.size(); ++i) {
        float sum = bias[i % width];
        for (std::size_t k = 0; k < width; ++k)
            sum += weight[i % width * width + k] * x[i / width * width + k];
        y[i] += std::tanh(sum);
    }
    return y;
}

/// Adds to the gradients of a layer. Turns the gradient of its output into that of its input.
void backward(Values weight, Batch const& x, Batch const& y, Batch& gradient,
              std::span<float> weight_gradient, std::span<float> bias_gradient) {
    Batch const output_gradient = gradient;
    for (std::size_t i = 0; i < y.size(); ++i) {
        float const inner = output_gradient[i] * (1.0F - (y[i] - x[i]) * (y[i] - x[i]));
        bias_gradient[i % width] += inner;
        for (std::size_t k = 0; k < width; ++k) {
            weight_gradient[i % width * width + k] += inner * x[i / width * width + k];
            gradient[i / width * width + k] += inner * weight[i % width * width + k];
        }
    }
}

/// Gradient of the mean squared error; adds that error to `loss`.
Batch compare(Batch const& x, Batch const& y, float& loss) {
    Batch gradient = y;
    for (std::size_t i = 0; i < y.size(); ++i) {
        gradient[i] -= x[i] + std::sin(x[i / width * width + (i + 1) % width]);
        loss += gradient[i] * gradient[i] / static_cast<float>(y.size());
        gradient[i] *= 2.0F / static_cast<float>(y.size());
    }
    return gradient;
}

Batch samples(std::size_t first, std::size_t count) {
    Batch x(count * width);
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = std::sin(static_cast<float>(first * width + i));
    return x;
}

std::vector<Layer> new_model() {
    std::vector<Layer> model(depth);
    for (std::size_t layer = 0; layer < depth; ++layer) {
        for (std::size_t i = 0; i < width * width; ++i)
            model[layer].weight.value[i] = 0.3F * std::sin(static_cast<float>(7 * i + layer));
    }
    return model;
}

struct AdamW { // for one tensor
    std::vector<float> first, second;

    void update(Tensor& tensor, std::size_t step) {
        first.resize(tensor.value.size());
        second.resize(tensor.value.size());
        float const first_correction = 1.0F - std::pow(0.9F, static_cast<float>(step + 1));
        float const second_correction = 1.0F - std::pow(0.999F, static_cast<float>(step + 1));
        for (std::size_t i = 0; i < tensor.value.size(); ++i) {
            first[i] = 0.9F * first[i] + 0.1F * tensor.gradient[i];
            second[i] = 0.999F * second[i] + 0.001F * tensor.gradient[i] * tensor.gradient[i];
            tensor.value[i] -=
                0.01F
                * (first[i] / first_correction / (std::sqrt(second[i] / second_correction) + 1e-8F)
                   + 0.01F * tensor.value[i]);
        }
    }
};

float train() {
    std::vector<Layer> model = new_model();
    std::vector<AdamW> optimizers(2 * depth);
    float loss = 0.0F; // the mean of the last ten steps
    for (std::size_t step = 0; step < steps; ++step) {
        std::vector<Batch> activations{samples(step * batch, batch)};
        for (std::size_t number = 0; number < depth; ++number) {
            Layer& layer = model[number];
            activations.push_back(
                forward(layer.weight.value, layer.bias.value, activations.back()));
        }
        float error = 0.0F;
        Batch gradient = compare(activations.front(), activations.back(), error);
        for (std::size_t number = depth; number-- > 0;) {
            Layer& layer = model[number];
            layer.weight.gradient.assign(width * width, 0.0F);
            layer.bias.gradient.assign(width, 0.0F);
            backward(layer.weight.value, activations[number], activations[number + 1], gradient,
                     layer.weight.gradient, layer.bias.gradient);
        }
        for (std::size_t number = 0; number < depth; ++number) {
            optimizers[2 * number].update(model[number].weight, step);
            optimizers[2 * number + 1].update(model[number].bias, step);
        }
        if (step + 10 >= steps) loss += error / 10.0F;
    }
    return loss;
}

int main() {
    float const loss = train();
    std::printf("loss %.9f\n", static_cast<double>(loss));
    return loss < 0.05F ? 0 : 1;
}
