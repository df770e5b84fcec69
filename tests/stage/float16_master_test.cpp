#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <zero/stage/zero_stage.hpp>

#include <vector>

// float16 master weights of bfloat16 parameters take half the memory of float ones, and have three
// bits more than the parameters.

namespace zero::test::float16_master_test {

namespace {

constexpr int world = 3;

template <int N, class Master>
std::vector<std::vector<float>> train(double learning_rate) {
    return on_ranks<std::vector<std::vector<float>>>(
        world, [&](LoopbackCommunicator& communicator) {
            ZeroStage<N, Parameters<bfloat16>, Master> engine(communicator,
                                                              registration<bfloat16>(toy_specs()));
            for (std::uint64_t step = 0; step < 5; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                               learning_rate);
            }
            return full_parameters(engine);
        })[0];
}

double distance(std::vector<std::vector<float>> const& a,
                std::vector<std::vector<float>> const& b) {
    double sum = 0.0;
    for (std::size_t parameter = 0; parameter < a.size(); ++parameter) {
        for (std::size_t i = 0; i < a[parameter].size(); ++i) {
            double const difference =
                static_cast<double>(a[parameter][i]) - static_cast<double>(b[parameter][i]);
            sum += difference * difference;
        }
    }
    return sum;
}

} // namespace

TEST_CASE("Small updates survive better in float16 master weights than in bfloat16 parameters "
          "alone, but not as well as in float") {
    auto const exact = train<2, MasterWeights<float>>(2e-3);
    double const half = distance(train<2, MasterWeights<float16>>(2e-3), exact);
    double const none = distance(train<2, NoMasterWeights>(2e-3), exact);
    CHECK(half > 0.0);
    CHECK(4.0 * half < none);
}

} // namespace zero::test::float16_master_test
