#include "comm/split_conformance.hpp"
#include "fake_communicator.hpp"

#include <array>
#include <thread>
#include <utility>
#include <vector>

namespace zero::test::nccl_conformance_test {

namespace {

template <cuda::NcclMode mode>
struct Fixture {
    using Communicator = FakeNcclCommunicator<mode>;

    template <class Body>
    static void run(int world, Body const& body) {
        run_nccl_ranks<Communicator>(world,
                                     [&](Communicator& communicator) { body(communicator); });
    }
};

using NonBlocking = Fixture<cuda::NcclMode::non_blocking>;
using Blocking = Fixture<cuda::NcclMode::blocking>;

static_assert(SplittableCommunicator<FakeNcclCommunicator<cuda::NcclMode::blocking>>);
static_assert(SplittableCommunicator<cuda::BasicNcclCommunicator<HostBackend>>
              && ExchangingCommunicator<cuda::BasicNcclCommunicator<HostBackend>>);

/// A part without rank 0, in reverse order. Rank 0 has its own part and ends at once.
template <class Whole>
struct PartFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        Whole::run(world + 1, [&](auto& parent) {
            auto part = parent.split(parent.rank() == 0 ? 0 : 1, -parent.rank());
            if (parent.rank() != 0) {
                body(part);
            }
        });
    }
};

} // namespace

TEST_CASE("NCCL sums float, even cuts by reduce-scatter and others by a group of reductions") {
    check_sums_of<NonBlocking, float>();
}

TEMPLATE_TEST_CASE("NCCL sums the 16-bit types", "", NonBlocking, Blocking) {
    check_sums_of<TestType, bfloat16>();
    check_sums_of<TestType, float16>();
}

TEMPLATE_TEST_CASE("NCCL gathers every type", "", NonBlocking, Blocking) {
    check_gathers_of<TestType, float, bfloat16, float16, std::int64_t, std::uint64_t,
                     unsigned char>();
}

TEMPLATE_TEST_CASE("NCCL exchanges every type", "", NonBlocking, Blocking) {
    check_exchanges_of<TestType, float, bfloat16, float16, std::int64_t, std::uint64_t,
                       unsigned char>();
}

TEMPLATE_TEST_CASE("NCCL broadcasts every type", "", NonBlocking, Blocking) {
    check_broadcasts_of<TestType, float, bfloat16, float16, std::int64_t, unsigned char>();
}

TEMPLATE_TEST_CASE("NCCL reduces integers exactly, and sums single numbers", "", NonBlocking,
                   Blocking) {
    check_integer_reductions<TestType>();
    check_number_sums<TestType>();
}

TEMPLATE_TEST_CASE("Ranks of NCCL in one process release each other when one aborts", "",
                   NonBlocking, Blocking) {
    check_abort<TestType>();
}

TEMPLATE_TEST_CASE("NCCL passes the suite of groups that can be split", "", NonBlocking, Blocking) {
    check_split<TestType>();
    check_abort_of_parts<TestType>();
}

TEMPLATE_TEST_CASE("A part of a group of NCCL passes the suite of communicators", "",
                   PartFixture<NonBlocking>, PartFixture<Blocking>) {
    check_sums_of<TestType, bfloat16>();
    check_gathers_of<TestType, float>();
    check_exchanges_of<TestType, float>();
    check_broadcasts_of<TestType, std::int64_t>();
    check_integer_reductions<TestType>();
    check_number_sums<TestType>();
}

TEMPLATE_TEST_CASE(
    "The watchdog releases a rank that waits for the device in vain, and the rank learns why", "",
    NonBlocking, Blocking) {
    using Communicator = typename TestType::Communicator;
    auto ranks = Communicator::make_group(2, {.time_out = std::chrono::milliseconds(50)});
    host::ThreadedQueue queue;
    std::vector<std::int64_t> values(3);
    ranks[0].all_reduce_integers(values.data(), values.size(), IntegerReduction::sum, &queue,
                                 CollectiveTag{"never called by rank 1", 0});
    queue.synchronise(); // would wait for ever
    CHECK_THAT(message_of<TimedOut>([&] { ranks[0].rethrow_failure(); }),
               contains_text("waited 50 ms for a collective on the device on rank 0 of 2"));
    CHECK_THAT(message_of<Aborted>([&] {
                   ranks[1].broadcast(values.data(), 1, 0, &queue, CollectiveTag{"later", 0});
               }),
               contains_text("rank 0: zero: waited 50 ms"));
}

TEST_CASE("One thread may drive several communicators, and another thread may destroy them") {
    auto ranks = NonBlocking::Communicator::make_group(2, {.time_out = std::chrono::seconds(60)});
    auto const fakes = ranks[0].fakes;
    std::vector<host::ThreadedQueue> queues(2);
    std::vector<std::vector<float>> values{{1, 2}, {3, 4}};
    for (int round = 0; round < 2; ++round) {
        for (std::size_t const rank : {0U, 1U}) {
            ranks[rank].broadcast(values[rank].data(), 2, round, &queues[rank]);
        }
    }
    for (auto& queue : queues) {
        queue.synchronise();
    }
    CHECK(values[1] == std::vector<float>{1, 2});
    std::thread([&] { ranks.clear(); }).join();
    CHECK(fakes->nccl.destroyed == 2);
    CHECK(fakes->nccl.collisions == 0);
}

TEST_CASE("The fake counts calls of NCCL whose job is not joined in time") {
    FakeNccl nccl;
    std::array<cuda::NcclHandle, 2> handles{};
    for (auto& handle : handles) {
        cuda::NcclUniqueId id;
        (void)nccl.get_unique_id(id);
        CHECK(nccl.init_rank(handle, 1, id, 0, {.mode = cuda::NcclMode::non_blocking})
              == cuda::NcclResult::in_progress);
        int world = 0;
        (void)nccl.count(handle, world);
        CHECK(world == 1);
    }
    CHECK(nccl.collisions == 0);
    (void)nccl.finalize(handles[0]);
    SECTION("another communicator of the thread") {
        (void)nccl.finalize(handles[1]);
        CHECK(nccl.collisions == 1);
    }
    SECTION("another thread") {
        std::thread([&] { (void)nccl.destroy(std::exchange(handles[0], nullptr)); }).join();
        CHECK(nccl.collisions == 1);
    }
    for (auto* const handle : handles) {
        if (handle != nullptr) {
            (void)nccl.abort(handle);
        }
    }
}

TEST_CASE("Ranks that call different collectives do not corrupt memory in the fake, so the suite "
          "cannot pass by accident") {
    using Communicator = NonBlocking::Communicator;
    auto ranks = Communicator::make_group(2, {.time_out = std::chrono::seconds(60)});
    host::ThreadedQueue first;
    host::ThreadedQueue second;
    std::vector<float> values(4, 1.0F);
    std::vector<float> others(4, 2.0F);
    ranks[0].broadcast(values.data(), 4, 0, &first);
    ranks[1].broadcast(others.data(), 3, 0, &second);
    first.synchronise();
    second.synchronise();
    CHECK(ranks[0].fakes->nccl.mismatches == 2);
    CHECK(others == std::vector<float>(4, 2.0F));
    std::vector<float> pieces(6, 3.0F);
    std::vector<std::size_t> const cuts{0, 2, 4};
    std::vector<std::size_t> const other_cuts{0, 1, 4};
    ranks[0].exchange(static_cast<float const*>(values.data()), pieces.data(), cuts, &first);
    ranks[1].exchange(static_cast<float const*>(others.data()), pieces.data(), other_cuts, &second);
    first.synchronise();
    second.synchronise();
    CHECK(ranks[0].fakes->nccl.mismatches == 4);
    CHECK(pieces == std::vector<float>(6, 3.0F));
}

} // namespace zero::test::nccl_conformance_test
