#include "fixture.hpp"
#include "support/allocation_count.hpp"

#include <zero/host/inline_queue.hpp>
#include <zero/host/threaded_queue.hpp>

#include <mpi.h>
#include <vector>

// A call of a collective neither waits for peers nor allocates.

namespace zero::test::mpi_enqueue_ranks_test {

TEST_CASE("A collective returns before its peers have called") {
    mpi::Communicator communicator(mpi_session().world(), mpi_options());
    host::ThreadedQueue queue;
    std::int64_t value = 1;
    int token = 0;
    if (communicator.rank() == 0) {
        communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
        for (int peer = 1; peer < communicator.size(); ++peer) { // only now may the others call
            MPI_Send(&token, 1, MPI_INT, peer, 0, MPI_COMM_WORLD);
        }
    } else {
        MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
    }
    queue.synchronise();
    queue.rethrow_failure();
    CHECK(value == communicator.size());
}

TEST_CASE("Collectives allocate nothing") {
    mpi::Communicator communicator(mpi_session().world(), mpi_options());
    auto const world = static_cast<std::size_t>(communicator.size());
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const cuts = cuts_of(std::vector<std::size_t>(world, 3001));
    std::vector<float> values(cuts.back(), 1.0F);
    std::vector<bfloat16> halves(cuts.back());
    std::int64_t integer = 1;
    host::InlineQueue at_once;
    host::ThreadedQueue threaded;
    allocations = 0;
    is_counting = true;
    for (int call = 0; call < 20; ++call) {
        host::Queue* const queue = call % 2 == 0 ? static_cast<host::Queue*>(&at_once) : &threaded;
        float* const own = values.data() + cuts[rank];
        communicator.reduce_scatter(static_cast<float const*>(values.data()), own, cuts, queue);
        communicator.all_gather(static_cast<float const*>(own), values.data(), cuts, queue);
        communicator.all_reduce(static_cast<bfloat16 const*>(halves.data()), halves.data(), cuts,
                                queue);
        communicator.broadcast(values.data(), values.size(), 0, queue);
        communicator.all_reduce_integers(&integer, 1, IntegerReduction::min, queue);
    }
    threaded.synchronise();
    is_counting = false;
    CHECK(allocations == 0);
    is_counting = true; // control: allocations are counted
    std::vector<int> const control(10);
    is_counting = false;
    CHECK(allocations == 1);
}

} // namespace zero::test::mpi_enqueue_ranks_test
