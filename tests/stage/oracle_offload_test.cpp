#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/stage/offload.hpp>

// States in files, with the partitioners and bucketers of other rows.

using namespace zero::test::oracle;

namespace {

using Both = zero::Offload<
    zero::To<zero::FileTier, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>>;

/// The engine refuses these beside files, which cut updates themselves.
bool without_tiles(Configuration& c) {
    c.update_tile_elements = 0;
    return true;
}

} // namespace

TEST_CASE("States in files, matrices dealt in turn: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<10, zero::LoopbackCommunicator, Both>(50, without_tiles);
}

TEST_CASE("States in files, two types, one of which is its own master: random configurations give "
          "the bits of the oracle in every stage",
          "[oracle]") {
    run_row<25, zero::LoopbackCommunicator, Both>(50, without_tiles);
}
