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
