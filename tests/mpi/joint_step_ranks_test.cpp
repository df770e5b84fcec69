#include "fixture.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/experts.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// A dense part and experts in several processes: the norms and parameters of threads, whether the
// engines have groups of their own or share one.

namespace zero::test::mpi_joint_step_ranks_test {

namespace {

constexpr int world = 4;

struct Seen {
    std::vector<double> norms;
    std::vector<std::vector<float>> parameters;

    bool operator==(Seen const&) const = default;
};

template <class C>
Seen train(C& everyone) {
    using Ranks = Groups<C, Experts>;
    using Dense = ZeroStage<3, DynamicLossScaler, C>;
    using Sparse = ZeroStage<2, DynamicLossScaler, Ranks>;
    Ranks ranks(everyone, {.experts = 2});
    auto specs = toy_specs();
    for (auto& spec : specs) {
        spec.name += "." + std::to_string(ranks.model().rank());
    }
    Dense dense(everyone, registration<float>(toy_specs()), {.gradient_clipping = 1.0F});
    Dense shared(everyone, registration<float>(toy_specs()), {.gradient_clipping = 1.0F});
    Sparse experts(ranks, registration<float>(specs), {.gradient_clipping = 1.0F});
    JointStep joint(dense, shared, experts);
    auto const rank = static_cast<std::uint64_t>(everyone.rank());
    Seen seen;
    for (std::uint64_t step = 0; step < 12; ++step) {
        joint.begin_step();
        auto const run = [&](auto& engine, std::uint64_t number, float scale) {
            for (auto const micro_step : engine.micro_steps(2)) {
                run_micro_step(engine, rank + number, step, micro_step, scale);
            }
        };
        run(dense, 0, dense.loss_scale());
        run(experts, 20, experts.loss_scale());
        run(shared, 40, shared.loss_scale());
        auto const [of_dense, of_shared, of_experts] = joint.step(0.01);
        for (double const norm : {of_dense.report().gradient_norm, of_shared.report().gradient_norm,
                                  of_experts.report().gradient_norm}) {
            seen.norms.push_back(norm);
        }
    }
    seen.parameters = full_parameters(dense);
    for (auto const& of : {full_parameters(shared), full_parameters(experts)}) {
        seen.parameters.insert(seen.parameters.end(), of.begin(), of.end());
    }
    return seen;
}

} // namespace

TEST_CASE("A joint step in processes has the bits of one in threads, on one communicator for two "
          "engines and on groups of experts") {
    if (mpi_session().size() < world) {
        skip_without_ranks(world);
        return;
    }
    auto const expected = on_ranks<Seen>(
        world, [](LoopbackCommunicator& communicator) { return train(communicator); });
    mpi::Communicator everyone(mpi_session().world(), mpi_options());
    bool const is_here = everyone.rank() < world;
    auto group = everyone.split(is_here ? 0 : 1, everyone.rank());
    if (!is_here) {
        SUCCEED();
        return;
    }
    Seen found;
    run_rank(group, [&](mpi::Communicator& communicator) { found = train(communicator); });
    CHECK(found == expected[static_cast<std::size_t>(group.rank())]);
    CHECK(found.norms[0] == found.norms[2]);
}

} // namespace zero::test::mpi_joint_step_ranks_test
