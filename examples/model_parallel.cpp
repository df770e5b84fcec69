// Two model ranks hold a half of a matrix each and a replica of its bias; two data ranks train each
// half. Norms, clipping and parameters have the bits of a run that does not cut the model.

#include <zero/comm/model_parallel.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

using Ranks = zero::Groups<zero::LoopbackCommunicator, zero::ModelParallel>;
using Cut = zero::ZeroStage<2, zero::AdamW, Ranks>;
using Whole = zero::ZeroStage<2, zero::AdamW>;

namespace {

constexpr int data_ranks = 2;
constexpr std::size_t model_ranks = 2, rows = 64, columns = 32, steps = 50;

/// The results of a rank.
struct Result {
    std::vector<double> norms;
    std::vector<float> matrix, bias;
};

/// Learns a wave. @param first, @param count the rows of the matrix that this rank holds
template <class Zero>
Result train(auto& communicator, std::vector<typename Zero::Registration> const& parameters,
             std::size_t first, std::size_t count) {
    Zero engine(communicator, parameters, {.gradient_clipping = 1.0F});
    Result result;
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            float const noise = engine.micro_batch(micro_step) % 2 == 0 ? 0.25F : -0.25F;
            auto const weights = engine.acquire(0);
            auto const gradients = engine.gradients(0);
            for (std::size_t i = 0; i < count * columns; ++i) {
                float const wanted = std::sin(static_cast<float>(first * columns + i));
                gradients[0][i] += weights[0][i] - wanted + noise;
            }
            for (std::size_t i = 0; i < columns; ++i) { // the same on both model ranks
                gradients[1][i] += weights[1][i] - 1.0F;
            }
            engine.gradients_ready(0);
        }
        result.norms.push_back(engine.step(0.05).report().gradient_norm);
    }
    engine.for_each_full_parameter([&](std::size_t index, std::span<float const> values) {
        (index == 0 ? result.matrix : result.bias).assign(values.begin(), values.end());
    });
    return result;
}

} // namespace

int main() {
    std::vector<Result> parts(data_ranks * model_ranks);
    zero::run_ranks<Ranks>(data_ranks * model_ranks, {.model = model_ranks}, [&](Ranks& ranks) {
        auto const part = static_cast<std::size_t>(ranks.model().rank());
        std::size_t const count = rows / model_ranks;
        std::vector<Cut::Registration> const parameters{
            {.name = "matrix", .elements = count * columns},
            {.name = "bias", .elements = columns, .counts_on = zero::CountsOn::first_model_rank}};
        parts[static_cast<std::size_t>(ranks.rank()) * model_ranks + part] =
            train<Cut>(ranks, parameters, part * count, count);
    });
    Result whole;
    zero::run_ranks(data_ranks, [&](zero::LoopbackCommunicator& ranks) {
        std::vector<Whole::Registration> const parameters{
            {.name = "matrix", .elements = rows * columns}, {.name = "bias", .elements = columns}};
        auto const result = train<Whole>(ranks, parameters, 0, rows);
        if (ranks.rank() == 0) {
            whole = result;
        }
    });
    bool is_same = true;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        Result const& part = parts[rank];
        auto const* const begin = whole.matrix.data() + rank % model_ranks * part.matrix.size();
        is_same = is_same && part.norms == whole.norms && part.bias == whole.bias
                  && part.matrix == std::vector<float>(begin, begin + part.matrix.size());
    }
    std::printf("norm of the first step %.6f; the cut model is bit-identical: %s\n", whole.norms[0],
                is_same ? "yes" : "no");
    return is_same && whole.norms[0] > 1.0 ? 0 : 1;
}
