#include "support/catch.hpp"

#include <zero/core/buffer.hpp>
#include <zero/core/convert.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/core/storage_types.hpp>

#include <limits>
#include <utility>

namespace zero::test::buffer_test {

TEST_CASE("A buffer allocates from the resource and deallocates in its destructor") {
    HostMemoryResource memory;
    {
        Buffer<float> const floats(memory, 10, BufferKind::gradients);
        Buffer<bfloat16> const brains(memory, 10, BufferKind::parameters);
        CHECK(floats.size() == 10);
        CHECK(floats.size_bytes() == 40);
        CHECK(brains.size_bytes() == 20);
        CHECK(static_cast<bool>(floats));
        CHECK(memory.allocated_bytes(BufferKind::gradients) == 40);
        CHECK(memory.allocated_bytes(BufferKind::parameters) == 20);
        floats.data()[9] = 3.0F;
        CHECK(floats.data()[9] == 3.0F);
    }
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("A buffer without elements, or without a resource, allocates nothing") {
    HostMemoryResource memory;
    Buffer<float> const empty(memory, 0, BufferKind::gradients);
    Buffer<float> const none;
    for (Buffer<float> const* buffer : {&empty, &none}) {
        CHECK(buffer->data() == nullptr);
        CHECK(buffer->size() == 0);
        CHECK(buffer->size_bytes() == 0);
        CHECK_FALSE(static_cast<bool>(*buffer));
    }
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("Moving a buffer transfers its memory and leaves an empty buffer") {
    HostMemoryResource memory;
    Buffer<float> first(memory, 8, BufferKind::master_weights);
    float const* const data = first.data();
    Buffer<float> second(std::move(first));
    CHECK(second.data() == data);
    CHECK(second.size() == 8);
    CHECK(first.data() == nullptr); // NOLINT(bugprone-use-after-move): this is what the test asks
    CHECK(first.size() == 0);
    CHECK(memory.allocated_bytes() == 32);
}

TEST_CASE("Move assignment deallocates the old memory at once, to its resource and kind") {
    HostMemoryResource memory;
    HostMemoryResource other;
    Buffer<float> target(other, 4, BufferKind::wire);
    Buffer<float> source(memory, 8, BufferKind::master_weights);
    float const* const data = source.data();
    target = std::move(source);
    CHECK(target.data() == data);
    CHECK(other.allocated_bytes(BufferKind::wire) == 0);
    CHECK(other.allocated_bytes(BufferKind::master_weights) == 0);
    CHECK(memory.allocated_bytes(BufferKind::master_weights) == 32);
    target = Buffer<float>();
    CHECK(memory.allocated_bytes(BufferKind::master_weights) == 0);
    CHECK(memory.allocated_bytes(BufferKind::wire) == 0);
}

TEST_CASE("Self-move keeps the memory of a buffer") {
    HostMemoryResource memory;
    Buffer<float> buffer(memory, 8, BufferKind::master_weights);
    float const* const data = buffer.data();
    Buffer<float>& same = buffer;
    buffer = std::move(same);
    CHECK(buffer.data() == data);
    CHECK(buffer.size() == 8);
    CHECK(memory.allocated_bytes() == 32);
}

TEST_CASE("A size in bytes that overflows is rejected before the resource is called") {
    HostMemoryResource memory;
    std::size_t const most = std::numeric_limits<std::size_t>::max();
    CHECK_THROWS_AS(Buffer<float>(memory, most / 4 + 1, BufferKind::gradients),
                    std::bad_array_new_length);
    CHECK_THROWS_AS(Buffer<float>(memory, most, BufferKind::gradients), std::bad_array_new_length);
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("A failed allocation leaves no buffer and deallocates nothing") {
    struct Exhausted : MemoryResource {
        int given_back = 0;
        void* allocate(std::size_t, BufferKind) override { throw std::bad_alloc(); }
        void deallocate(void*, std::size_t, BufferKind) noexcept override { ++given_back; }
    };
    Exhausted memory;
    Buffer<float> kept;
    CHECK_THROWS_AS(kept = Buffer<float>(memory, 4, BufferKind::gradients), std::bad_alloc);
    CHECK_FALSE(static_cast<bool>(kept));
    CHECK(memory.given_back == 0);
}

TEST_CASE("A buffer can be moved but not copied") {
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<Buffer<float>>);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<Buffer<float>>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<Buffer<float>>);
    STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<Buffer<float>>);
}

} // namespace zero::test::buffer_test
