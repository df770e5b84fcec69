// The collectives of all groups of a rank are enqueued in one order on one queue, so random groups
// never wait for one another in a circle, whatever the queue delays.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/experts.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/zero.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zero::test::groups_order_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Hybrid>;
using Copies = Groups<LoopbackCommunicator, Secondary>;
using HostCopies = Groups<Hosts, Secondary>;
using Cut = Groups<LoopbackCommunicator, ModelParallel>;
using HostCut = Groups<Hosts, ModelParallel>;
using ExpertRanks = Groups<LoopbackCommunicator, Experts>;

/// Draws numbers from a seed.
struct Draws {
    std::uint64_t seed;
    std::uint64_t count = 0;

    std::size_t below(std::size_t limit) {
        return static_cast<std::size_t>((noise(seed, 41, count++) + 1.0F) * 0.5F
                                        * static_cast<float>(limit));
    }

    /// A divisor of `number`, from `least` to `most`; `least` if there is none.
    std::size_t divisor(std::size_t number, std::size_t least, std::size_t most) {
        std::vector<std::size_t> all;
        for (std::size_t divisor = least; divisor <= most; ++divisor) {
            if (number % divisor == 0) {
                all.push_back(divisor);
            }
        }
        return all.empty() ? least : all[below(all.size())];
    }
};

template <class Engine>
void run_backward(Engine& engine, std::size_t rank, std::size_t step) {
    for (auto const micro_step : engine.micro_steps(2)) {
        run_micro_step(engine, rank, step, micro_step);
    }
}

std::vector<Parameter<float>> parameters_of(std::string const& prefix, std::size_t units) {
    std::vector<Parameter<float>> parameters;
    for (std::size_t unit = 0; unit < units; ++unit) {
        parameters.push_back(
            {.name = prefix + std::to_string(unit), .elements = 70 + 64 * unit, .units = {unit}});
    }
    return parameters;
}

template <class Stage>
typename Stage::Options options_on(host::Queue& queue) {
    typename Stage::Options options;
    options.communication_queue = &queue;
    options.gradient_clipping = 1.0F;
    return options;
}

/// Returns the norms of two steps. @param prefix of names
template <int N, class Ranks>
std::array<double, 2> train(Ranks& ranks, host::Queue& queue, std::size_t rank,
                            std::string const& prefix) {
    using Stage = ZeroStage<N, Ranks>;
    Stage engine(ranks, parameters_of(prefix, 2), options_on<Stage>(queue));
    std::array<double, 2> norms{};
    for (std::size_t step = 0; step < 2; ++step) {
        engine.begin_step();
        run_backward(engine, rank, step);
        norms[step] = engine.step(0.1).report().gradient_norm;
    }
    return norms;
}

/// Experts on E ranks, and a dense part.
std::array<double, 2> train_jointly(LoopbackCommunicator& everyone, ExpertRanks& ranks,
                                    host::Queue& queue, std::size_t rank) {
    using Dense = ZeroStage<3>;
    using Sparse = ZeroStage<2, ExpertRanks>;
    auto const expert = std::to_string(ranks.model().rank());
    Dense dense(everyone, parameters_of("dense ", 2), options_on<Dense>(queue));
    Sparse sparse(ranks, parameters_of("expert " + expert + '.', 1), options_on<Sparse>(queue));
    JointStep joint(dense, sparse);
    std::array<double, 2> norms{};
    for (std::size_t step = 0; step < 2; ++step) {
        joint.begin_step();
        for (std::size_t micro_step = 0; micro_step < 2; ++micro_step) {
            sparse.begin_micro_step();
            dense.begin_micro_step();
            run_micro_step(dense, rank, step, micro_step);
            run_micro_step(sparse, rank, step, micro_step);
            dense.end_micro_step();
            sparse.end_micro_step();
        }
        auto const [of_dense, of_experts] = joint.step(0.1);
        norms[step] = of_experts.report().gradient_norm;
    }
    return norms;
}

/// Trains on random groups of one of 6 kinds. @return the norms that each rank saw
std::vector<std::array<double, 2>> run(std::uint64_t seed, std::size_t kind) {
    Draws draws{seed};
    std::size_t const world = std::array<std::size_t, 4>{4, 6, 8, 4}[draws.below(4)];
    std::size_t const part = draws.divisor(world, 2, world / 2);
    std::size_t const shift = draws.below(world);
    bool const gives_groups = draws.below(2) == 0;
    return on_ranks<std::array<double, 2>>(
        static_cast<int>(world), [&](LoopbackCommunicator& everyone) -> std::array<double, 2> {
            auto const rank = static_cast<std::size_t>(everyone.rank());
            host::DelayingQueue queue(seed * 16 + rank, 20);
            // consecutive ranks, or ranks that lie anywhere
            std::size_t const place = (rank * (world - 1) + shift) % world;
            GroupsOptions hybrid{.shard = part};
            if (gives_groups) {
                hybrid.group = place / part;
            }
            switch (kind) {
            case 0: {
                Hosts hosts(everyone, hybrid);
                return train<2>(hosts, queue, rank, "p");
            }
            case 1: {
                Copies copies(everyone, {.secondary = part});
                return train<3>(copies, queue, rank, "p");
            }
            case 2: { // groups of 4 in two replicas, or one of 4 or 6
                Hosts hosts(everyone, {.shard = world == 8 ? 4 : world});
                HostCopies copies(hosts, {.secondary = 2});
                return train<3>(copies, queue, rank, "p");
            }
            case 3: {
                Cut ranks(everyone, {.model = part});
                return train<3>(ranks, queue, rank, "part");
            }
            case 4: { // model ranks that are sharded in pairs of data ranks
                auto const model_size = static_cast<int>(world / 2);
                auto data = everyone.split(everyone.rank() % model_size, everyone.rank());
                auto model = everyone.split(everyone.rank() / model_size, everyone.rank());
                Hosts hosts(data, {.shard = 1 + shift % 2});
                HostCut ranks(hosts, model);
                return train<2>(ranks, queue, rank, "part");
            }
            default: {
                ExpertRanks ranks(everyone, {.experts = part});
                return train_jointly(everyone, ranks, queue, rank);
            }
            }
        });
}

/// Requires that 334 runs of two kinds end, and that all ranks decide on one norm.
void check(std::size_t first_kind) {
    for (std::uint64_t seed = 0; seed < 334; ++seed) {
        auto const norms = run(seed, first_kind + seed % 2);
        bool is_right = norms[0][0] > 0.0 && norms[0][1] > 0.0;
        for (auto const& rank : norms) {
            is_right = is_right && rank == norms[0];
        }
        INFO("seed " << seed);
        CHECK(is_right);
    }
}

} // namespace

// 1002 runs
TEST_CASE(
    "Random groups of shards and replicas, or with secondary copies, never wait in a circle") {
    check(0);
}

TEST_CASE(
    "Random groups with copies in replicas, or over parts of a model, never wait in a circle") {
    check(2);
}

TEST_CASE(
    "Random groups of model ranks that are sharded in pairs, or of experts with a dense part, "
    "never wait in a circle") {
    check(4);
}

} // namespace zero::test::groups_order_test
