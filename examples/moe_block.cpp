// A dense layer and 8 experts on 4 data ranks. The experts lie whole on every rank, on 2 ranks, or
// on 4; the norms, the clipped updates and the parameters are the same bits.

#include <zero/comm/experts.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using Everyone = zero::LoopbackCommunicator;
using ExpertRanks = zero::Groups<Everyone, zero::Experts>;
using Dense = zero::ZeroStage<3, zero::AdamW>;
using Sparse = zero::ZeroStage<2, zero::AdamW, ExpertRanks>;

namespace {

constexpr int data_ranks = 4;
constexpr std::size_t experts = 8, width = 48, tokens = 16, steps = 20;

/// The results of a rank.
struct Result {
    std::vector<double> norms;
    std::vector<float> dense;
    std::vector<std::vector<float>> experts{::experts}; ///< those that the rank holds
};

/// The expert to which a router sends a token. Few tokens go to the last ones.
std::size_t route(std::size_t rank, std::size_t token, std::size_t step) {
    return (rank * 7 + token * token + step) % 13 % experts;
}

/// Adds the gradient of the loss |weight - wanted| of one token.
void backward(std::span<float const> weights, std::span<float> gradients, std::size_t layer) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
        float const wanted = std::sin(static_cast<float>(layer * width + i));
        gradients[i] += weights[i] < wanted ? -1.0F : 1.0F;
    }
}

Result train(Everyone& everyone, std::size_t ranks_with_experts) {
    ExpertRanks ranks(everyone, {.experts = ranks_with_experts});
    auto const part = static_cast<std::size_t>(ranks.model().rank());
    std::size_t const count = experts / ranks_with_experts, first = part * count;
    std::vector<Sparse::Registration> held(count);
    for (std::size_t i = 0; i < count; ++i) { // the number of the expert in the model
        held[i] = {.name = "experts." + std::to_string(first + i), .elements = width, .units = {i}};
    }
    Dense dense(everyone, {{.name = "dense", .elements = width}}, {.gradient_clipping = 1.0F});
    Sparse sparse(ranks, held, {.gradient_clipping = 1.0F});
    zero::JointStep joint(dense, sparse);

    auto const rank = static_cast<std::size_t>(everyone.rank());
    Result result;
    for (std::size_t step = 0; step < steps; ++step) {
        joint.begin_step();
        dense.begin_micro_step();
        sparse.begin_micro_step();
        for (std::size_t i = count; i-- > 0;) {
            auto const weights = sparse.acquire(i);
            auto const gradients = sparse.gradients(i);
            // The tokens that an all-to-all among `ranks.model()` brings to this expert.
            for (std::size_t from = rank - part; from < rank - part + ranks_with_experts; ++from) {
                for (std::size_t token = 0; token < tokens; ++token) {
                    if (route(from, token, step) == first + i) {
                        backward(weights[i], gradients[i], 1 + first + i);
                    }
                }
            }
            sparse.gradients_ready(i);
        }
        {
            auto const weights = dense.acquire(0);
            auto const gradients = dense.gradients(0);
            for (std::size_t token = 0; token < tokens; ++token) {
                backward(weights[0], gradients[0], 0);
            }
            dense.gradients_ready(0);
        }
        dense.end_micro_step();
        sparse.end_micro_step();
        auto const [of_dense, of_experts] = joint.step(0.05);
        result.norms.push_back(of_experts.report().gradient_norm);
    }
    dense.for_each_full_parameter([&](std::size_t, std::span<float const> values) {
        result.dense.assign(values.begin(), values.end());
    });
    sparse.for_each_full_parameter([&](std::size_t i, std::span<float const> values) {
        result.experts[first + i].assign(values.begin(), values.end());
    });
    return result;
}

} // namespace

int main() {
    Result whole;
    bool is_same = true;
    for (std::size_t const ranks_with_experts : {1U, 2U, 4U}) {
        std::vector<Result> results(data_ranks);
        zero::run_ranks(data_ranks, [&](Everyone& everyone) {
            results[static_cast<std::size_t>(everyone.rank())] =
                train(everyone, ranks_with_experts);
        });
        whole = ranks_with_experts == 1 ? results[0] : whole;
        for (Result const& rank : results) {
            is_same = is_same && rank.norms == whole.norms && rank.dense == whole.dense;
            for (std::size_t expert = 0; expert < experts; ++expert) {
                is_same = is_same
                          && (rank.experts[expert].empty()
                              || rank.experts[expert] == whole.experts[expert]);
            }
        }
    }
    std::printf("norm of the first step %.6f; bit-identical on 1, 2 and 4 ranks: %s\n",
                whole.norms[0], is_same ? "yes" : "no");
    return is_same && whole.norms[0] > 1.0 ? 0 : 1;
}
