#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <vector>

// The update of stages 0 and 3 in several commands.

namespace zero::test::update_tiles_test {

namespace {

/// Counts the elements of each update of the calling rank.
struct CountingBackend : HostBackend {
    inline static thread_local std::vector<std::size_t>* updates = nullptr;

    template <class Optimizer, class Slice, class Group>
    static void update(Queue queue, std::span<Slice const> slices, Group const* groups,
                       UpdateDecision const* decision) {
        if (updates != nullptr) {
            updates->push_back(0);
            for (Slice const& slice : slices) {
                updates->back() += slice.elements;
            }
        }
        HostBackend::update<Optimizer>(queue, slices, groups, decision);
    }
};

using Counting = Loopback<CountingBackend>;

struct Seen {
    std::vector<std::size_t> updates; ///< elements of each update command of the last step
    std::vector<std::uint32_t> state;
};

template <int N>
Seen train(std::size_t tile, int world) {
    return on_ranks<Seen, Counting>(world, [&](Counting& communicator) {
        ZeroStage<N, Counting> engine(communicator, registration<float>(toy_specs()),
                                      {.update_tile_elements = tile});
        Seen seen;
        for (std::uint64_t step = 0; step < 2; ++step) {
            seen.updates.clear();
            CountingBackend::updates = &seen.updates;
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
            CountingBackend::updates = nullptr;
        }
        seen.state = snapshot(engine);
        return seen;
    })[0];
}

} // namespace

TEST_CASE("An update in tiles has the bits of one command, and no tile has more elements unless it "
          "is one slice") {
    in_every_stage([]<int N>() {
        for (int const world : {1, 2}) {
            bool const is_in_one = N == 0 || N == 3 || world == 1;
            Seen const whole = train<N>(0, world);
            CHECK((!is_in_one || whole.updates.size() == 1));
            for (std::size_t const tile : {1U, 64U, 300U, 10'000U}) {
                INFO("tiles of " << tile << " elements, world " << world);
                Seen const tiled = train<N>(tile, world);
                CHECK(tiled.state == whole.state);
                std::size_t sum = 0;
                for (std::size_t const elements : tiled.updates) {
                    sum += elements;
                }
                std::size_t expected = 0;
                for (std::size_t const elements : whole.updates) {
                    expected += elements;
                }
                CHECK(sum == expected);
                if (!is_in_one || tile == 10'000) {
                    CHECK(tiled.updates == whole.updates);
                } else if (tile == 1 && N == 0) {
                    // One tile for each trainable parameter that has elements.
                    CHECK(tiled.updates.size() == 6);
                } else {
                    CHECK(tiled.updates.size() > 1);
                }
            }
        }
    });
}

TEST_CASE("Tiles hold as many slices as fit") {
    // In stage 0 the slices are, in ready order: 1, 64, 129, 7, 500 and 300 elements.
    CHECK((train<0>(200, 2).updates == std::vector<std::size_t>{194, 7, 500, 300}));
}

} // namespace zero::test::update_tiles_test
