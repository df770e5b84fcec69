#include "cuda/device_model.cuh"

#include "support/stages.hpp"

#include <array>
#include <vector>

// What a step enqueues on a device. A change of these numbers is a change of what a step costs.

namespace zero::test::launches_test {

namespace {

struct Launches {
    std::size_t kernels;
    std::size_t fills;
    std::size_t copies;
    friend bool operator==(Launches const&, Launches const&) = default;
};

std::ostream& operator<<(std::ostream& out, Launches const& seen) {
    return out << '{' << seen.kernels << ", " << seen.fills << ", " << seen.copies << '}';
}

/// Returns what the last of three steps of a model of five units enqueues, one micro-step each.
template <class Stage>
Launches launches(int world, typename Stage::Options options) {
    auto const ranks = on_ranks<Launches, typename Stage::Communicator>(
        world, [&](typename Stage::Communicator& communicator) {
            cuda::OwnedStream const stream;
            auto own = options;
            own.gradient_clipping = 0.5F;
            own.compute_queue = stream.get();
            Stage engine(communicator, registration<bfloat16>(toy_specs()), own);
            Launches before{};
            for (std::uint64_t step = 0; step < 3; ++step) {
                before = {emulated::kernels, emulated::fills, emulated::copies};
                (void)run_device_step(engine, stream.get(),
                                      static_cast<std::uint64_t>(communicator.rank()), step, 1,
                                      0.01, 4);
            }
            return Launches{emulated::kernels - before.kernels, emulated::fills - before.fills,
                            emulated::copies - before.copies};
        });
    for (Launches const& rank : ranks) {
        CHECK(rank == ranks[0]);
    }
    return ranks[0];
}

} // namespace

TEST_CASE("A step enqueues as many kernels, fills and copies as the table says, 8 kernels of the "
          "model included",
          "[cuda]") {
    struct Row {
        Launches one_rank;
        Launches two_ranks;
    };
    std::array<Row, 4> const table{{{{14, 5, 0}, {17, 5, 3}},
                                    {{14, 5, 0}, {18, 5, 3}},
                                    {{14, 5, 0}, {18, 5, 3}},
                                    {{17, 5, 0}, {23, 5, 29}}}};
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>, Loopback<cuda::Backend>>;
        Row const& row = table[N];
        CHECK(launches<Stage>(1, {}) == row.one_rank);
        CHECK(launches<Stage>(2, {}) == row.two_ranks);
        CHECK(launches<Stage>(1, {.report = {.zero_gradients = true, .group_norms = true}})
              == Launches{row.one_rank.kernels + 3, row.one_rank.fills, row.one_rank.copies});
    });
}

} // namespace zero::test::launches_test
