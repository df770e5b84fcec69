#include "support/catch.hpp"
#include "support/gate.hpp"

#include <zero/host/host_backend.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/detail/memory/bucket_pool.hpp>

#include <cstddef>

namespace zero::test::bucket_pool_test {

namespace {

using zero::detail::LeaseChoice;
using Pool = zero::detail::BucketPool<float, HostBackend>;

constexpr Fence fence = Fence::gradient_lease_reuse;

/// A pool with two queues that write to it, and one that uses what they wrote.
struct Pools {
    explicit Pools(LeasePlan const& plan) : pool(plan, memory, BufferKind::gradient_leases) {}

    float* open(std::size_t bucket, host::ThreadedQueue& writer) {
        return pool.claim(bucket) ? pool.open(bucket, &writer, fence) : nullptr;
    }

    HostMemoryResource memory;
    Pool pool;
    host::ThreadedQueue compute;
    host::ThreadedQueue communication;
    host::ThreadedQueue other;
    Gate gate; // opens before the queues end
};

} // namespace

TEST_CASE("A bucket waits for the last use of the memory that it gets") {
    Pools pools({.places = {{0, 64}, {0, 64}}, .spares = {}, .elements = 64});
    float* const first = pools.open(0, pools.compute);
    pools.gate.hold(pools.communication);
    bool is_reduced = false;
    bool was_reduced = false;
    pools.communication.enqueue([&] { is_reduced = true; });
    pools.pool.close(0, pools.communication.record());
    CHECK(pools.open(1, pools.compute) == first); // the host does not wait
    pools.compute.enqueue([&] { was_reduced = is_reduced; });
    pools.gate.open();
    pools.compute.synchronise();
    CHECK(was_reduced);
}

TEST_CASE("Buckets in different places do not wait for one another") {
    Pools pools({.places = {{0, 64}, {64, 192}}, .spares = {}, .elements = 192});
    float* const first = pools.open(0, pools.compute);
    pools.gate.hold(pools.communication);
    pools.pool.close(0, pools.communication.record());
    // The reduction of bucket 0 has not begun, and commands that follow the lease run.
    CHECK(pools.open(1, pools.compute) == first + 64);
    pools.compute.synchronise();
    CHECK(pools.pool.is_open(1));
    CHECK_FALSE(pools.pool.is_open(0));
    pools.gate.open();
}

TEST_CASE("A bucket waits for every bucket that used a part of its memory") {
    Pools pools({.places = {{0, 64}, {64, 128}, {0, 128}}, .spares = {}, .elements = 128});
    (void)pools.open(0, pools.compute);
    (void)pools.open(1, pools.compute);
    pools.pool.close(0, pools.compute.record());
    pools.gate.hold(pools.communication);
    bool is_reduced = false;
    bool was_reduced = false;
    pools.communication.enqueue([&] { is_reduced = true; });
    pools.pool.close(1, pools.communication.record());
    REQUIRE(pools.open(2, pools.compute) != nullptr);
    pools.compute.enqueue([&] { was_reduced = is_reduced; });
    pools.gate.open();
    pools.compute.synchronise();
    CHECK(was_reduced);
}

TEST_CASE("A bucket whose place is taken gets the spare place, then the smallest free part") {
    Pools pools({.places = {{0, 128}, {0, 128}, {128, 320}, {0, 64}, {320, 448}},
                 .spares = {192},
                 .elements = 640});
    float* const begin = pools.open(0, pools.compute);
    CHECK(pools.open(1, pools.compute) == begin + 448); // spare
    CHECK(pools.open(3, pools.compute) == begin + 320); // smaller than the place of bucket 2
    CHECK(pools.open(2, pools.compute) == begin + 128);
    CHECK_FALSE(pools.pool.claim(4)); // 128 elements, of which bucket 3 has a part
    CHECK_FALSE(pools.pool.is_claimed(4));
    pools.pool.close(1, pools.compute.record());
    CHECK(pools.open(4, pools.compute) == begin + 448);
}

TEST_CASE("A bucket may be told to leave the places of others alone") {
    Pools pools({.places = {{0, 64}, {0, 64}, {64, 128}}, .spares = {64}, .elements = 192});
    REQUIRE(pools.pool.claim(0));
    CHECK_FALSE(pools.pool.claim(1, LeaseChoice::own_place));
    CHECK(pools.pool.claim(1, LeaseChoice::spare_places));
    CHECK(pools.pool.open(1, &pools.compute, fence) == pools.pool.at(0) + 128);
    pools.pool.unclaim(0);
    pools.pool.close(1, pools.compute.record());
    REQUIRE(pools.pool.claim(2));
    CHECK(pools.pool.claim(0, LeaseChoice::own_place));
}

TEST_CASE("A claim that is given up leaves the memory and its last use as they were") {
    Pools pools({.places = {{0, 64}, {0, 64}}, .spares = {}, .elements = 64});
    (void)pools.open(0, pools.compute);
    CHECK_FALSE(pools.pool.claim(1));
    pools.pool.close(0, pools.compute.record());
    REQUIRE(pools.pool.claim(1));
    CHECK(pools.pool.claim(1)); // a no-op
    CHECK_FALSE(pools.pool.claim(0));
    pools.pool.unclaim(1);
    pools.pool.unclaim(1); // a no-op
    CHECK_FALSE(pools.pool.is_claimed(1));
    CHECK(pools.open(0, pools.compute) == pools.pool.at(0));
}

TEST_CASE("A bucket that moves waits for its own last use, so its memory waits for both") {
    // Bucket 0 is in the spare place and later in its own. Each use ends on another queue. Bucket
    // 2 gets the spare place after both: it knows only the last use of bucket 0.
    Pools pools({.places = {{0, 64}, {0, 64}, {0, 64}}, .spares = {64}, .elements = 128});
    REQUIRE(pools.open(1, pools.communication) != nullptr);
    float* const spare = pools.open(0, pools.communication);
    REQUIRE(spare == pools.pool.at(1) + 64);
    pools.pool.close(1, pools.communication.record());
    pools.gate.hold(pools.other);
    bool is_read = false;
    bool was_read = false;
    pools.other.enqueue([&] { is_read = true; });
    pools.pool.close(0, pools.other.record());
    REQUIRE(pools.open(0, pools.communication) != spare); // its own place
    HostBackend::wait(&pools.compute, pools.communication.record(), Fence::weights_gathered);
    pools.pool.close(0, pools.compute.record());
    REQUIRE(pools.open(1, pools.communication) != spare);
    REQUIRE(pools.open(2, pools.communication) == spare);
    pools.communication.enqueue([&] { was_read = is_read; });
    pools.gate.open();
    pools.communication.synchronise();
    CHECK(was_read);
}

TEST_CASE("A queue that waits for the last uses waits for those of every closed lease") {
    for (std::size_t const held : {0U, 1U}) {
        Pools pools({.places = {{0, 64}, {64, 128}}, .spares = {}, .elements = 128});
        (void)pools.open(0, pools.compute);
        (void)pools.open(1, pools.compute);
        pools.pool.close(1 - held, pools.compute.record());
        pools.gate.hold(pools.communication);
        bool is_read = false;
        bool was_read = false;
        pools.communication.enqueue([&] { is_read = true; });
        pools.pool.close(held, pools.communication.record());
        pools.pool.wait_for_last_uses(&pools.other, fence);
        pools.other.enqueue([&] { was_read = is_read; });
        pools.gate.open();
        pools.other.synchronise();
        CHECK(was_read);
    }
}

} // namespace zero::test::bucket_pool_test
