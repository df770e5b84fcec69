// Linear layers that are too large to be gathered at once: each weight is one parameter in tiles,
// which stage 3 gathers one by one. The tiles split outputs and inputs; the bias is added once. The
// same network without tiles, in stage 0, ends with the same bits.

#include <zero/stage/tiles.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int world = 2;
constexpr std::size_t width = 96, hidden = 192, steps = 60;
using Vector = std::vector<float>;

/// y = W x + b. W is stored as {input splits, outputs, inputs of a split}, so that a tile (some
/// outputs of one input split) is contiguous. Tile t is parameter first + t in unit first + t; the
/// bias follows.
struct TiledLinear {
    std::size_t in, out, in_splits, out_splits, first;

    std::size_t tiles() const { return in_splits * out_splits; }
    std::size_t next() const { return first + tiles() + 1; } ///< first number of the next layer
    std::size_t columns() const { return in / in_splits; }
    std::size_t rows() const { return out / out_splits; }

    template <class Registrations>
    void register_in(Registrations& list, std::string const& name) const {
        zero::Parameter<float> weight{.name = name + ".weight", .units = {first}};
        weight.shape = {in_splits, out, columns()};
        weight.initialise = [*this](std::size_t begin, std::span<float> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                // by row and column of W, so that tiles do not change the model
                std::size_t const split = (begin + i) / (out * columns());
                std::size_t const row = (begin + i) / columns() % out;
                std::size_t const column = split * columns() + (begin + i) % columns();
                values[i] = (zero::ops::uniform(zero::ops::random_key(7, first == 0 ? 0 : 1),
                                                row * in + column)
                             - 0.5F)
                            / std::sqrt(static_cast<float>(in));
            }
        };
        weight.is_deterministic = true; // each rank computes what it owns
        for (auto const& tile : zero::tiles(weight, tiles())) list.push_back(tile);
        list.push_back({.name = name + ".bias", .elements = out, .units = {first + tiles()}});
    }

    template <class Engine>
    Vector forward(Engine& engine, Vector const& x) const {
        Vector y(out);
        for (std::size_t t = 0; t < tiles(); ++t) {
            auto const handle = engine.acquire(first + t); // one tile at a time
            auto const tile = handle[first + t];
            std::size_t const row = t % out_splits * rows(), column = t / out_splits * columns();
            for (std::size_t r = 0; r < rows(); ++r)
                for (std::size_t c = 0; c < columns(); ++c)
                    y[row + r] += tile[r * columns() + c] * x[column + c];
        }
        auto const handle = engine.acquire(first + tiles());
        for (std::size_t r = 0; r < out; ++r) y[r] += handle[first + tiles()][r];
        return y;
    }

    /// Adds the gradients of the layer and returns that of x.
    template <class Engine>
    Vector backward(Engine& engine, Vector const& x, Vector const& dy) const {
        auto const bias = engine.gradients(first + tiles());
        for (std::size_t r = 0; r < out; ++r) bias[first + tiles()][r] += dy[r];
        engine.gradients_ready(first + tiles());
        Vector dx(in);
        for (std::size_t t = tiles(); t-- > 0;) {
            auto const handle = engine.acquire(first + t);
            auto const gradients = engine.gradients(first + t);
            auto const tile = handle[first + t];
            auto const gradient = gradients[first + t];
            std::size_t const row = t % out_splits * rows(), column = t / out_splits * columns();
            for (std::size_t r = rows(); r-- > 0;)
                for (std::size_t c = 0; c < columns(); ++c) {
                    gradient[r * columns() + c] += dy[row + r] * x[column + c];
                    dx[column + c] += tile[r * columns() + c] * dy[row + r];
                }
            engine.gradients_ready(first + t);
        }
        return dx;
    }
};

struct Result {
    std::vector<float> losses;
    std::size_t leases = 0, weight = sizeof(float) * width * hidden; ///< in bytes
};

/// Trains two layers to reverse their input.
template <class Zero>
Result train(std::size_t in_splits, std::size_t out_splits) {
    TiledLinear const up{width, hidden, in_splits, out_splits, 0};
    TiledLinear const down{hidden, width, in_splits, out_splits, up.next()};
    std::vector<Result> results(world);
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::vector<typename Zero::Registration> parameters;
        up.register_in(parameters, "up");
        down.register_in(parameters, "down");
        Zero engine(communicator, parameters);
        for (std::size_t step = 0; step < steps; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                Vector x(width), d(width), loss(1);
                for (std::size_t i = 0; i < width; ++i)
                    x[i] = std::sin(static_cast<float>((step % 4 * world + rank) * 31 + i));
                Vector h = up.forward(engine, x);
                for (float& value : h) value = std::tanh(value);
                Vector const y = down.forward(engine, h);
                for (std::size_t i = 0; i < width; ++i) {
                    d[i] = (y[i] - x[width - 1 - i]) / static_cast<float>(width);
                    loss[0] += d[i] * d[i] * static_cast<float>(width);
                }
                Vector dh = down.backward(engine, h, d);
                for (std::size_t i = 0; i < hidden; ++i) dh[i] *= 1.0F - h[i] * h[i];
                up.backward(engine, x, dh);
                results[rank].losses.push_back(loss[0]);
            }
            engine.step(0.003);
        }
        results[rank].leases =
            engine.memory_plan()[zero::BufferKind::parameter_leases].content_bytes;
    });
    return results[0];
}

} // namespace

int main() {
    auto const whole = train<zero::ZeroStage<0, zero::AdamW>>(1, 1);
    auto const untiled = train<zero::ZeroStage<3, zero::AdamW>>(1, 1);
    auto const tiled = train<zero::ZeroStage<3, zero::AdamW>>(2, 8);
    std::printf("loss %.4f -> %.4f\n", static_cast<double>(tiled.losses.front()),
                static_cast<double>(tiled.losses.back()));
    std::printf("a weight takes %zu bytes; stage 3 gathers into %zu, in 16 tiles into %zu\n",
                tiled.weight, untiled.leases, tiled.leases);
    bool const is_right = tiled.losses == whole.losses && untiled.losses == whole.losses
                          && tiled.losses.back() < 0.1F * tiled.losses.front()
                          && 8 * tiled.leases <= untiled.leases;
    std::printf("with and without tiles the losses are %s\n", is_right ? "equal" : "WRONG");
    return is_right ? 0 : 1;
}
