#include "support/catch.hpp"
#include "support/gate.hpp"

#include <zero/host/host_backend.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/detail/bucket_pool.hpp>

#include <array>
#include <cstddef>

namespace zero::test::bucket_pool_test {

TEST_CASE("A pool leases the buffer that was free longest, so no bucket waits for the one before") {
    for (std::array<std::size_t, 2> const closed :
         {std::array<std::size_t, 2>{0, 1}, std::array<std::size_t, 2>{1, 0}}) {
        CAPTURE(closed[0]);
        HostMemoryResource memory;
        zero::detail::BucketPool<float, HostBackend> pool(2, 64, 4, memory,
                                                          BufferKind::gradient_leases);
        bool is_reduced = false;
        bool was_reduced = false;
        host::ThreadedQueue compute;
        host::ThreadedQueue communication;
        Gate gate;
        std::array<float*, 2> leases{};
        for (std::size_t bucket = 0; bucket < leases.size(); ++bucket) {
            leases[bucket] = pool.open(bucket, &compute, Fence::gradient_lease_reuse);
        }
        REQUIRE(leases[0] != leases[1]);
        REQUIRE(pool.free_leases() == 0);
        pool.close(closed[0], communication.record());
        gate.hold(communication);
        communication.enqueue([&is_reduced] { is_reduced = true; });
        pool.close(closed[1], communication.record());

        // The reduction of the bucket closed last has not even begun, and the next bucket still
        // gets writable memory.
        REQUIRE(pool.open(2, &compute, Fence::gradient_lease_reuse) == leases[closed[0]]);
        compute.synchronise();

        // The bucket after that gets the other lease, after its last use.
        REQUIRE(pool.open(3, &compute, Fence::gradient_lease_reuse) == leases[closed[1]]);
        compute.enqueue([&is_reduced, &was_reduced] { was_reduced = is_reduced; });
        gate.open();
        compute.synchronise();
        CHECK(was_reduced);
        CHECK(pool.free_leases() == 0);
    }
}

} // namespace zero::test::bucket_pool_test
