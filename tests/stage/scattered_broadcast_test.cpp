#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/comm/recording.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

// Scattered parameters get the values of rank 0 bucket by bucket where they are published in
// leases, and one by one elsewhere.

namespace zero::test::scattered_broadcast_test {

namespace {

constexpr std::size_t tensors = 60;

struct Seen {
    std::vector<std::vector<float>> made, changed;
    std::size_t broadcasts = 0; ///< broadcasts during the construction
    std::size_t buckets = 0;    ///< number of trainable buckets
};

template <int N>
std::vector<Seen> observe() {
    return on_ranks<Seen>(3, [](LoopbackCommunicator& transport) {
        auto const rank = static_cast<float>(transport.rank());
        Recording<LoopbackCommunicator> communicator(transport);
        std::vector<std::vector<float>> model;
        std::vector<Parameter<float>> parameters;
        for (std::size_t p = 0; p < tensors; ++p) {
            model.emplace_back(p % 5 == 4 ? 0 : 10 + p, static_cast<float>(p) + 1000.0F * rank);
        }
        for (std::size_t p = 0; p < tensors; ++p) {
            Parameter<float> parameter;
            parameter.name = "p" + std::to_string(p);
            parameter.data = model[p].data();
            parameter.elements = model[p].size();
            parameter.units = {p / 10};
            parameter.trainable = p % 12 != 3;
            parameters.push_back(std::move(parameter));
        }
        ZeroStage<N, Recording<LoopbackCommunicator>> engine(
            communicator, parameters,
            {.storage = Storage::scattered, .poison = true, .bucketer = {.bucket_bytes = 2000}});
        Seen seen;
        seen.broadcasts = communicator.recorded()[CollectiveKind::broadcast].calls;
        seen.buckets = engine.layout().trainable_buckets();
        seen.made = model;
        for (std::size_t p = 0; p < tensors; ++p) {
            std::fill(model[p].begin(), model[p].end(), static_cast<float>(p) + 0.5F + rank);
        }
        engine.parameters_changed();
        seen.changed = model;
        return seen;
    });
}

template <int N>
void check(std::size_t least_saved) {
    INFO("stage " << N);
    for (Seen const& seen : observe<N>()) {
        for (std::size_t p = 0; p < tensors; ++p) {
            for (std::size_t i = 0; i < seen.made[p].size(); ++i) {
                REQUIRE(seen.made[p][i] == static_cast<float>(p));
                REQUIRE(seen.changed[p][i] == static_cast<float>(p) + 0.5F);
            }
        }
        std::size_t const frozen = 4; // 3, 15, 27, 51; 39 is empty
        std::size_t const trainable = tensors - tensors / 5 - frozen;
        CHECK(seen.broadcasts == (least_saved == 0 ? trainable : seen.buckets) + frozen);
        CHECK(seen.broadcasts + least_saved <= trainable + frozen);
    }
}

} // namespace

TEST_CASE("Scattered parameters of stages 1 and 2 are sent by bucket, and one by one in stage 0") {
    check<0>(0);
    check<1>(30);
    check<2>(30);
}

} // namespace zero::test::scattered_broadcast_test
