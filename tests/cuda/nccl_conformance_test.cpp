#include "comm/conformance.hpp"
#include "fake_communicator.hpp"

using namespace zero;
using namespace zero::test;

namespace {

template <cuda::NcclMode mode>
struct Fixture {
    using Communicator = FakeNcclCommunicator<mode>;

    template <class Body>
    static void run(int world, Body const& body) {
        run_nccl_ranks<Communicator>(world, [&](Communicator& communicator) { body(communicator); });
    }
};

using NonBlocking = Fixture<cuda::NcclMode::non_blocking>;
using Blocking = Fixture<cuda::NcclMode::blocking>;

static_assert(Communicator<FakeNcclCommunicator<cuda::NcclMode::blocking>>);

} // namespace

TEST_CASE("NCCL sums float: even cuts by reduce-scatter, others by a group of reductions") { check_sums_of<NonBlocking, float>(); }

TEMPLATE_TEST_CASE("NCCL sums the 16-bit types", "", NonBlocking, Blocking) {
    check_sums_of<TestType, bfloat16>();
    check_sums_of<TestType, float16>();
}

TEMPLATE_TEST_CASE("NCCL gathers every type", "", NonBlocking, Blocking) { check_gathers_of<TestType, float, bfloat16, float16, std::int64_t, std::uint64_t, unsigned char>(); }

TEMPLATE_TEST_CASE("NCCL broadcasts every type", "", NonBlocking, Blocking) { check_broadcasts_of<TestType, float, bfloat16, float16, std::int64_t, unsigned char>(); }

TEMPLATE_TEST_CASE("NCCL reduces integers exactly", "", NonBlocking, Blocking) { check_integer_reductions<TestType>(); }

TEMPLATE_TEST_CASE("NCCL's ranks in one process release each other when one aborts", "", NonBlocking, Blocking) { check_abort<TestType>(); }

TEMPLATE_TEST_CASE("a rank that waits for the device in vain is released by the watchdog, and told", "", NonBlocking, Blocking) {
    using Communicator = typename TestType::Communicator;
    auto ranks = Communicator::make_group(2, {.time_out = std::chrono::milliseconds(50)});
    host::ThreadedQueue queue;
    std::vector<std::int64_t> values(3);
    ranks[0].all_reduce_integers(values.data(), values.size(), IntegerReduction::sum, &queue, CollectiveTag{"never called by rank 1", 0});
    queue.synchronize(); // would wait for ever
    CHECK_THAT(message_of<TimedOut>([&] { ranks[0].rethrow_failure(); }), contains_text("waited 50 ms for a collective on the device on rank 0 of 2"));
    CHECK_THAT(message_of<Aborted>([&] { ranks[1].broadcast(values.data(), 1, 0, &queue, CollectiveTag{"later", 0}); }), contains_text("rank 0: zero: waited 50 ms"));
}

TEST_CASE("ranks that call different collectives do not corrupt memory in the fake, so that the suite can not pass by accident") {
    using Communicator = NonBlocking::Communicator;
    auto ranks = Communicator::make_group(2, {.time_out = std::chrono::seconds(60)});
    host::ThreadedQueue first;
    host::ThreadedQueue second;
    std::vector<float> values(4, 1.0F);
    std::vector<float> others(4, 2.0F);
    ranks[0].broadcast(values.data(), 4, 0, &first);
    ranks[1].broadcast(others.data(), 3, 0, &second);
    first.synchronize();
    second.synchronize();
    CHECK(ranks[0].fakes->nccl.mismatches == 2);
    CHECK(others == std::vector<float>(4, 2.0F));
}
