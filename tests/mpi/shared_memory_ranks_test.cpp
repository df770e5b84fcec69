#include "comm/in_shared.hpp"
#include "fixture.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/detail/decorator.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/resource.h>

// Ranks of one host that read one another's memory in place: the suite of communicators on such
// memory, engines, and what happens where the system refuses.

namespace zero::test::mpi_shared_memory_ranks_test {

namespace {

std::atomic<std::size_t> sent_bytes = 0; ///< of all messages of this process

struct DefaultOptions {
    static mpi::Options get() { return mpi_options(); }
};

template <bool is_mixed>
struct Fixture {
    static void meet(int world) { MpiFixture<DefaultOptions>::meet(world); }

    template <class Body>
    static bool run(int world, Body const& body) {
        return MpiFixture<DefaultOptions>::run(world, [&](mpi::Communicator& inner) {
            InShared<mpi::Communicator, is_mixed> communicator(inner);
            body(communicator);
        });
    }
};

using Shared = Fixture<false>;
using Mixed = Fixture<true>;

} // namespace

TEST_CASE("Ranks that read one another's memory sum in rank order") {
    check_sums_of<Shared, float>();
    check_sums_of<Shared, bfloat16>();
    check_sums_of<Shared, float16>();
}

TEST_CASE("Ranks that read one another's memory gather, exchange and broadcast every type") {
    check_gathers_of<Shared, float, bfloat16, std::int64_t, unsigned char>();
    check_exchanges_of<Shared, float, bfloat16, std::int64_t, unsigned char>();
    check_broadcasts_of<Shared, float, std::int64_t, unsigned char>();
    check_number_sums<Shared>();
}

TEST_CASE("Ranks send messages whenever one of them has other memory, with the same bits") {
    check_sums_of<Mixed, float>();
    check_sums_of<Mixed, bfloat16>();
    check_gathers_of<Mixed, float, unsigned char>();
    check_exchanges_of<Mixed, float, std::int64_t>();
    check_broadcasts_of<Mixed, float, unsigned char>();
}

TEST_CASE("Ranks that read one another's memory are released when one aborts") {
    CHECK(mpi_session().size() > 0); // one process has no peer to release
    check_abort<Shared>();
}

TEST_CASE("Engines on one host send no bucket, and have the bits of threads and of messages") {
    int const world = mpi_session().size();
    auto const expected = on_ranks<ParametersOfStages>(
        world, [](LoopbackCommunicator& threads) { return train_every_stage(threads); });
    std::array<std::size_t, 2> sent{};
    for (bool const shares : {false, true}) {
        mpi::Options options = mpi_options();
        options.shares_memory = shares;
        mpi::Communicator ranks(mpi_session().world(), options);
        std::size_t const before = sent_bytes;
        ParametersOfStages const found = train_every_stage(ranks);
        sent[shares ? 1 : 0] = sent_bytes - before;
        CHECK(found == expected[static_cast<std::size_t>(ranks.rank())]);
        std::string const reason = shares ? "" : "mpi::Options::shares_memory is false";
        CHECK(ranks.reason_for_messages() == (world == 1 ? "it is the only rank" : reason));
    }
    INFO(sent[0] << " and " << sent[1] << " bytes");
    CHECK((world == 1 || sent[1] < sent[0] / 5)); // what ranks compare, and decide, is sent
}

TEST_CASE("The parts of a group on one host read one another's memory") {
    int const world = mpi_session().size();
    if (world < 4) {
        skip_without_ranks(4);
        return;
    }
    mpi::Communicator everyone(mpi_session().world(), mpi_options());
    CHECK(everyone.reason_for_messages().empty());
    bool const is_here = everyone.rank() < 4;
    auto ranks = everyone.split(is_here ? 0 : 1, everyone.rank());
    if (is_here) {
        auto intra = ranks.split(ranks.rank() / 2, ranks.rank());
        auto inter = ranks.split(ranks.rank() % 2, ranks.rank());
        CHECK(intra.reason_for_messages().empty());
        CHECK(inter.reason_for_messages().empty());
        Hierarchical<mpi::Communicator, mpi::Communicator> levels(intra, inter);
        CHECK(&levels.shared_memory() == &everyone.shared_memory());
        Checked<mpi::Communicator> checked(ranks);
        CHECK(&checked.shared_memory() == &everyone.shared_memory());
    }
}

TEST_CASE("Ranks send messages if the system refuses one of them a file in memory") {
    mpi::Communicator shared(mpi_session().world(), mpi_options());
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit less = before;
    less.rlim_cur = rlim_t{1} << 30U;
    int const world = shared.size();
    int const last = world - 1;
    if (shared.rank() == last) {
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &less) == 0);
    }
    mpi::Communicator ranks(mpi_session().world(), mpi_options());
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::string const own = "the system refuses a file of that size (File too large)";
    std::string const other = "the system refuses rank " + std::to_string(last) + " such memory";
    if (world > 1) {
        CHECK(ranks.reason_for_messages() == (shared.rank() == last ? own : other));
    }
    auto const expected = on_ranks<ParametersOfStages>(
        world, [](LoopbackCommunicator& threads) { return train_every_stage(threads); });
    CHECK(train_every_stage(ranks) == expected[static_cast<std::size_t>(ranks.rank())]);
}

TEST_CASE("Ranks that differ in whether they share memory are told so") {
    mpi::Options options = mpi_options();
    options.shares_memory = mpi_session().rank() != 0;
    std::string const text = message_of<LayoutMismatch>(
        [&] { mpi::Communicator const ranks(mpi_session().world(), options); });
    CHECK((mpi_session().size() == 1 || contains(text, "shares_memory must be equal")));
}

} // namespace zero::test::mpi_shared_memory_ranks_test

/// Stands before the function of the library and counts what is sent.
extern "C" int MPI_Isend(void const* data, int count, MPI_Datatype type, int peer, int tag,
                         MPI_Comm communicator, MPI_Request* request) {
    zero::test::mpi_shared_memory_ranks_test::sent_bytes += static_cast<std::size_t>(count);
    return PMPI_Isend(data, count, type, peer, tag, communicator, request);
}
