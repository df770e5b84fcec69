#include "engine_model.hpp"
#include "support/catch.hpp"

#include <zero/checkpoint/checkpoint_saver.hpp>
#include <zero/comm/recording.hpp>

#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

// A rank vanishes while a checkpoint is made: between the data and the manifest, and at every other
// point where the ranks agree.

namespace zero::test::vanished_rank_test {

namespace {

using namespace engine_model;

/// One rank fails where all ranks are to agree that they "could ...".
class Vanishing : public Recording<LoopbackCommunicator> {
public:
    Vanishing(LoopbackCommunicator& inner, int rank, std::string_view where)
        : Recording(inner), _is_mine(inner.rank() == rank), _where(where) {}

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        if (_is_mine && _where == tag.what) {
            throw std::runtime_error("the rank vanishes");
        }
        Recording::all_gather(send, receive, cuts, queue, tag);
    }

private:
    bool _is_mine;
    std::string_view _where;
};

using Saved = ZeroStage<2, Vanishing>;
using Loaded = ZeroStage<1>;

constexpr int world = 3;

std::size_t leftovers(std::filesystem::path const& folder) {
    std::size_t count = 0;
    for (auto const& entry : std::filesystem::directory_iterator(folder)) {
        count += entry.path().filename().string().starts_with(".incomplete-") ? 1U : 0U;
    }
    return count;
}

/// Trains and saves twice; a rank vanishes in the second save. Returns the state at each save.
template <class Save>
std::array<Bits, 2> vanish(std::filesystem::path const& folder, int rank, std::string_view where,
                           Save const& save) {
    std::array<std::array<Bits, 2>, world> states;
    Outcomes const outcomes = run_and_observe(world, [&](LoopbackCommunicator& transport) {
        auto& own = states[static_cast<std::size_t>(transport.rank())];
        Vanishing whole(transport, -1, where);
        {
            Toy<Saved> toy(whole, same_schedule<Saved>());
            train(*toy.engine, whole, 0, 2);
            own[0] = state_of(*toy.engine);
            save(*toy.engine, folder);
        }
        Vanishing partial(transport, rank, where);
        Toy<Saved> toy(partial, same_schedule<Saved>());
        load_checkpoint(*toy.engine, folder);
        train(*toy.engine, partial, 2, 3);
        own[1] = state_of(*toy.engine);
        save(*toy.engine, folder);
    });
    for (int other = 0; other < world; ++other) {
        INFO(where << ", rank " << other);
        Outcome const& own = outcomes.ranks[static_cast<std::size_t>(other)];
        CHECK(own.message.find("the rank vanishes") != std::string::npos);
        CHECK((own.type == "Aborted") == (other != rank));
    }
    CHECK(states[0] == states[world - 1]);
    return states[0];
}

/// Loads the latest checkpoint on two ranks, then saves. Returns the state that was loaded.
Bits go_on(std::filesystem::path const& folder) {
    return on_ranks<Bits>(2, [&](LoopbackCommunicator& communicator) {
        Toy<Loaded> toy(communicator, same_schedule<Loaded>());
        load_checkpoint(*toy.engine, folder);
        Bits const loaded = state_of(*toy.engine);
        save_checkpoint(*toy.engine, folder, {.name = "next"});
        return loaded;
    })[0];
}

struct Place {
    char const* where;
    bool is_published; ///< whether rank 0 had published before the ranks agreed
};

template <class Save>
void check_places(std::vector<Place> const& places, Save const& save) {
    for (Place const& place : places) {
        for (int rank = 0; rank < world; ++rank) {
            INFO(place.where << ", rank " << rank);
            TemporaryFolder const folder;
            auto const states = vanish(folder.path(), rank, place.where, save);
            REQUIRE(states[0] != states[1]);
            CHECK(leftovers(folder.path()) == (place.is_published ? 0U : 1U));
            CHECK(go_on(folder.path()) == states[place.is_published ? 1 : 0]);
            CHECK(leftovers(folder.path()) == 0);
        }
    }
}

} // namespace

TEST_CASE("If a rank vanishes while all save, the latest checkpoint is complete and loads") {
    check_places({{"begin the checkpoint", false},
                  {"write its file of the checkpoint", false},
                  {"publish the checkpoint", true}},
                 [](auto& engine, auto const& folder) { save_checkpoint(engine, folder); });
}

TEST_CASE("If a rank vanishes while the background writes, the latest checkpoint loads") {
    check_places({{"copy its state for the checkpoint", false},
                  {"write its file of the checkpoint", false},
                  {"publish the checkpoint", true}},
                 [](auto& engine, auto const& folder) {
                     CheckpointSaver saver(engine, folder);
                     saver.start();
                     (void)saver.wait();
                 });
}

} // namespace zero::test::vanished_rank_test
