#include "comm/split_conformance.hpp"
#include "fixture.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/recording.hpp>

namespace zero::test::mpi_conformance_ranks_test {

namespace {

struct DefaultOptions {
    static mpi::Options get() { return mpi_options(); }
};

/// Allows a few elements per message, so that a collective takes many rounds.
struct SmallScratch {
    static mpi::Options get() {
        mpi::Options options = mpi_options();
        options.scratch_bytes = 1;
        return options;
    }
};

using Fixture = MpiFixture<DefaultOptions>;
static_assert(SplittableCommunicator<mpi::Communicator>);
using InRounds = MpiFixture<SmallScratch>;

template <template <class> class Decorator>
struct Decorated {
    static void meet(int world) { Fixture::meet(world); }

    template <class Body>
    static bool run(int world, Body const& body) {
        return Fixture::run(world, [&](mpi::Communicator& inner) {
            Decorator<mpi::Communicator> communicator(inner);
            body(communicator);
        });
    }
};

} // namespace

TEST_CASE("MPI sums float in rank order") {
    check_sums_of<Fixture, float>();
}

TEST_CASE("MPI sums bfloat16 in rank order and rounds once") {
    check_sums_of<Fixture, bfloat16>();
}

TEST_CASE("MPI sums float16 in rank order and rounds once") {
    check_sums_of<Fixture, float16>();
}

TEST_CASE("MPI sums the same in many rounds as in one") {
    check_sums_of<InRounds, float>();
    check_sums_of<InRounds, bfloat16>();
}

TEST_CASE("MPI gathers every type") {
    check_gathers_of<Fixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                     unsigned char>();
    check_gathers_of<InRounds, float, unsigned char>();
}

TEST_CASE("MPI exchanges every type, in one round and in many") {
    check_exchanges_of<Fixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                       unsigned char>();
    check_exchanges_of<InRounds, float, std::int64_t, unsigned char>();
}

TEST_CASE("MPI broadcasts every type") {
    check_broadcasts_of<Fixture, float, bfloat16, float16, std::int64_t, unsigned char>();
    check_broadcasts_of<InRounds, std::int64_t>();
}

TEST_CASE("MPI reduces integers exactly, and sums single numbers") {
    check_integer_reductions<Fixture>();
    check_integer_reductions<InRounds>();
    check_number_sums<InRounds>();
}

TEST_CASE("MPI releases all ranks when one rank aborts") {
    CHECK(mpi_session().size() > 0); // one process has no peer to release
    check_abort<Fixture>();
}

TEST_CASE("MPI passes the suite of groups that can be split") {
    CHECK(mpi_session().size() > 0); // one process cannot be split
    check_split<Fixture>();
    check_abort_of_parts<Fixture>();
}

TEST_CASE("A decorated communicator over MPI does the same") {
    check_sums_of<Decorated<Recording>, float>();
    check_sums_of<Decorated<Checked>, bfloat16>();
    check_gathers_of<Decorated<Checked>, float, unsigned char>();
    check_exchanges_of<Decorated<Recording>, bfloat16>();
    check_exchanges_of<Decorated<Checked>, float, unsigned char>();
    check_integer_reductions<Decorated<Checked>>();
    check_number_sums<Decorated<Checked>>();
    check_abort<Decorated<Checked>>();
}

} // namespace zero::test::mpi_conformance_ranks_test
