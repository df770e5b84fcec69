#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <array>
#include <cstdint>
#include <vector>

// The exact calls of NCCL by rank 1 of 3. Addresses are bytes in one block of memory.

namespace zero::test::nccl_calls_test {

namespace {

using Cuts = std::array<std::size_t, 4>;
using Lines = Script::Lines;

constexpr Cuts even{0, 64, 128, 192};
constexpr Cuts uneven{0, 10, 13, 15};
constexpr Cuts holes{0, 0, 5, 5};
constexpr Cuts nothing{0, 0, 0, 0};
constexpr CollectiveTag tag{"gradients of bucket", 3};

} // namespace

TEST_CASE("Even cuts are one native call, in place if the caller's buffers are") {
    Script script;
    auto communicator = script.communicator();
    float* const all = script.at<float>(0);
    communicator.reduce_scatter(static_cast<float const*>(all), all + 64, even, script.queue(),
                                tag);
    CHECK(script.journal.take() == Lines{"reduce_scatter 0 -> 256, 64 float32 sum", "record"});
    communicator.all_gather(static_cast<float const*>(all + 64), all, even, script.queue(), tag);
    CHECK(script.journal.take() == Lines{"all_gather 256 -> 0, 64 float32", "record"});
}

TEST_CASE("Uneven cuts are a group of one reduction per owner, and only the owner passes memory "
          "for the result") {
    Script script;
    auto communicator = script.communicator();
    auto* const all = script.at<bfloat16>(0);
    communicator.reduce_scatter(static_cast<bfloat16 const*>(all), script.at<bfloat16>(512), uneven,
                                script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "reduce 0 -> null, 10 bfloat16 sum to 0",
                   "reduce 20 -> 512, 3 bfloat16 sum to 1",
                   "reduce 26 -> null, 2 bfloat16 sum to 2", "group_end", "record"});
}

TEST_CASE("Uneven cuts are a group of one broadcast per owner") {
    Script script;
    auto communicator = script.communicator();
    auto* const all = script.at<std::int64_t>(0);
    communicator.all_gather(script.at<std::int64_t const>(512), all, uneven, script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "broadcast 0 -> 0, 10 int64 from 0",
                   "broadcast 512 -> 80, 3 int64 from 1", "broadcast 104 -> 104, 2 int64 from 2",
                   "group_end", "record"});
}

TEST_CASE("Empty extents are skipped, and an empty collective calls nothing") {
    Script script;
    auto communicator = script.communicator();
    auto* const all = script.at<float16>(0);
    communicator.reduce_scatter(static_cast<float16 const*>(all), all, holes, script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "reduce 0 -> 0, 5 float16 sum to 1", "group_end", "record"});
    communicator.all_gather(static_cast<float16 const*>(all), all, nothing, script.queue(), tag);
    communicator.all_reduce(static_cast<float16 const*>(nullptr), static_cast<float16*>(nullptr),
                            nothing, script.queue(), tag);
    communicator.broadcast(all, 0, 2, script.queue(), tag);
    communicator.all_reduce_integers(nullptr, 0, IntegerReduction::sum, script.queue(), tag);
    CHECK(script.journal.take().empty());
}

TEST_CASE(
    "An all-reduce is a reduce-scatter and a gather into the same memory, so it has their bits") {
    Script script;
    auto communicator = script.communicator();
    communicator.all_reduce(script.at<float const>(0), script.at<float>(0), even, script.queue(),
                            tag);
    CHECK(script.journal.take()
          == Lines{"reduce_scatter 0 -> 256, 64 float32 sum", "all_gather 256 -> 0, 64 float32",
                   "record"});
    communicator.all_reduce(script.at<float const>(512), script.at<float>(0), holes, script.queue(),
                            tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "reduce 512 -> 0, 5 float32 sum to 1", "group_end", "group_start",
                   "broadcast 0 -> 0, 5 float32 from 1", "group_end", "record"});
}

TEST_CASE(
    "An exchange is a group of one send to each owner and one receive from each rank, of which "
    "empty ones are left out") {
    Script script;
    auto communicator = script.communicator();
    communicator.exchange(script.at<bfloat16 const>(0), script.at<bfloat16>(512), uneven,
                          script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "send 0 -> null, 10 bfloat16 to 0",
                   "receive null -> 512, 3 bfloat16 from 0", "send 20 -> null, 3 bfloat16 to 1",
                   "receive null -> 518, 3 bfloat16 from 1", "send 26 -> null, 2 bfloat16 to 2",
                   "receive null -> 524, 3 bfloat16 from 2", "group_end", "record"});
    communicator.exchange(script.at<float const>(0), script.at<float>(512), Cuts{0, 3, 3, 5},
                          script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "send 0 -> null, 3 float32 to 0",
                   "send 12 -> null, 2 float32 to 2", "group_end", "record"});
    communicator.exchange(script.at<float const>(0), script.at<float>(512), nothing, script.queue(),
                          tag);
    CHECK(script.journal.take().empty());
}

TEST_CASE("In rank order a reduction exchanges into the slots in rounds, and an all-reduce gathers "
          "the sums") {
    struct Slots : MemoryResource { // whose addresses the test knows
        alignas(128) std::byte bytes[3 * 1024]{};
        void* allocate(std::size_t, BufferKind) override { return bytes; }
        void deallocate(void*, std::size_t, BufferKind) noexcept override {}
    } slots;
    Script script;
    script.options.order = cuda::NcclOrder::rank;
    script.options.scratch_bytes = 0; // 1 KiB per rank
    script.options.memory = &slots;
    script.nccl.base = slots.bytes;
    auto communicator = script.communicator();
    CHECK(communicator.scratch_bytes(0) == 3072);
    std::vector<float> all(900, 1.0F); // in place, at another address for each run
    communicator.reduce_scatter(static_cast<float const*>(all.data()), all.data() + 300,
                                Cuts{0, 300, 600, 700}, script.queue(), tag);
    Lines receives;
    Lines others;
    for (auto const& line : script.journal.take()) {
        bool const is_receive = line.rfind("receive", 0) == 0;
        (is_receive ? receives : others)
            .push_back(line.rfind("send", 0) == 0 ? line.substr(line.find(", ")) : line);
    }
    CHECK(receives
          == Lines{
              "receive null -> 0, 256 float32 from 0", "receive null -> 1024, 256 float32 from 1",
              "receive null -> 2048, 256 float32 from 2", "receive null -> 0, 44 float32 from 0",
              "receive null -> 1024, 44 float32 from 1",
              "receive null -> 2048, 44 float32 from 2"});
    CHECK(others
          == Lines{"group_start", ", 256 float32 to 0", ", 256 float32 to 1", ", 100 float32 to 2",
                   "group_end", "group_start", ", 44 float32 to 0", ", 44 float32 to 1",
                   "group_end", "record"});
    CHECK(all[299] == 1.0F);
    CHECK(all[300] == 0.0F); // the sum of slots that nothing has filled
    CHECK(all[599] == 0.0F);
    CHECK(all[600] == 1.0F);
    communicator.all_reduce(static_cast<float const*>(all.data()), all.data(), nothing,
                            script.queue(), tag);
    CHECK(script.journal.take().empty());
    communicator.all_reduce(static_cast<float const*>(all.data()), all.data(), even, script.queue(),
                            tag);
    auto const lines = script.journal.take();
    CHECK(lines.size() == 10);
    CHECK(lines[7] == "group_end");
    CHECK(lines[8].rfind("all_gather", 0) == 0); // of the sums
    CHECK(lines[9] == "record");
}

TEST_CASE("With native_all_reduce an all-reduce is NCCL's own for any cuts") {
    Script script;
    script.options.native_all_reduce = true;
    auto communicator = script.communicator();
    communicator.all_reduce(script.at<float const>(0), script.at<float>(512), uneven,
                            script.queue(), tag);
    CHECK(script.journal.take() == Lines{"all_reduce 0 -> 512, 15 float32 sum", "record"});
}

TEST_CASE("Broadcasts and reductions of integers are one call in place") {
    Script script;
    auto communicator = script.communicator();
    communicator.broadcast(script.at<unsigned char>(3), 77, 2, script.queue(), tag);
    communicator.all_reduce_integers(script.at<std::int64_t>(8), 5, IntegerReduction::sum,
                                     script.queue(), tag);
    communicator.all_reduce_integers(script.at<std::int64_t>(16), 6, IntegerReduction::min,
                                     script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"broadcast 3 -> 3, 77 uint8 from 2", "record", "all_reduce 8 -> 8, 5 int64 sum",
                   "record", "all_reduce 16 -> 16, 6 int64 min", "record"});
}

TEST_CASE("Sums and minima of integers are one group of calls, and one call if there is one kind") {
    Script script;
    auto communicator = script.communicator();
    communicator.all_reduce_integers(script.at<std::int64_t>(8), 23, 4, script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "all_reduce 8 -> 8, 23 int64 sum",
                   "all_reduce 192 -> 192, 4 int64 min", "group_end", "record"});
    communicator.all_reduce_integers(script.at<std::int64_t>(8), 5, 0, script.queue(), tag);
    communicator.all_reduce_integers(script.at<std::int64_t>(8), 0, 3, script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"all_reduce 8 -> 8, 5 int64 sum", "record", "all_reduce 8 -> 8, 3 int64 min",
                   "record"});
}

TEST_CASE("Counts beyond 2^31 reach NCCL unchanged") {
    Script script;
    auto communicator = script.communicator();
    constexpr std::size_t n = 3'000'000'000U;
    constexpr Cuts huge{0, n, 2 * n, 3 * n};
    constexpr Cuts skew{0, n, 2 * n + 1, 2 * n + 2};
    auto const* const own = script.at<unsigned char const>(n);
    auto* const all = script.at<unsigned char>(0);
    communicator.all_gather(own, all, huge, script.queue(), tag);
    CHECK(script.journal.take() == Lines{"all_gather 3000000000 -> 0, 3000000000 uint8", "record"});
    communicator.all_gather(own, all, skew, script.queue(), tag);
    CHECK(script.journal.take()
          == Lines{"group_start", "broadcast 0 -> 0, 3000000000 uint8 from 0",
                   "broadcast 3000000000 -> 3000000000, 3000000001 uint8 from 1",
                   "broadcast 6000000001 -> 6000000001, 1 uint8 from 2", "group_end", "record"});
}

TEST_CASE("A single rank copies and calls no collective of NCCL") {
    Script script;
    script.nccl.rank = 0;
    script.nccl.world = 1;
    auto communicator = script.communicator();
    std::array<std::size_t, 2> const cuts{0, 4};
    std::vector<float> const in{1, 2, 3, 4};
    std::vector<float> out(4);
    communicator.reduce_scatter(in.data(), out.data(), cuts, script.queue(), tag);
    CHECK(out == in);
    out.assign(4, 0.0F);
    communicator.all_reduce(in.data(), out.data(), cuts, script.queue(), tag);
    CHECK(out == in);
    out.assign(4, 0.0F);
    communicator.all_gather(in.data(), out.data(), cuts, script.queue(), tag);
    CHECK(out == in);
    std::int64_t value = 7;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, script.queue(), tag);
    communicator.broadcast(&value, 1, 0, script.queue(), tag);
    CHECK(value == 7);
    CHECK(script.journal.take().empty());
}

TEST_CASE("Bad arguments are refused before any call, and the communicator stays usable") {
    Script script;
    auto communicator = script.communicator();
    constexpr Cuts falling{0, 9, 5, 15};
    constexpr std::array<std::size_t, 3> few{0, 1, 2};
    float* const all = script.at<float>(0);
    float const* const in = all;
    CHECK_THROWS_AS(communicator.reduce_scatter(in, all, falling, script.queue(), tag),
                    InvalidArgument);
    CHECK_THROWS_WITH(
        communicator.all_gather(in, all, few, script.queue(), tag),
        contains_text("'gradients of bucket 3' on rank 1 got 3 cuts; a group of 3 ranks needs 4"));
    CHECK_THROWS_WITH(
        communicator.reduce_scatter(in, static_cast<float*>(nullptr), uneven, script.queue(), tag),
        contains_text("null pointer for 3 elements"));
    CHECK_THROWS_WITH(communicator.broadcast(all, 3, 3, script.queue(), tag),
                      contains_text("broadcast from rank 3, which is not in the group of 3"));
    CHECK_THROWS_AS(communicator.broadcast(all, 3, -1, script.queue(), tag), InvalidArgument);
    CHECK_THROWS_AS(
        communicator.all_reduce_integers(nullptr, 1, IntegerReduction::sum, script.queue(), tag),
        InvalidArgument);
    CHECK(script.journal.take().empty());
    CHECK_FALSE(communicator.is_aborted());
    communicator.broadcast(all, 3, 2, script.queue(), tag);
    CHECK(script.journal.take() == Lines{"broadcast 0 -> 0, 3 float32 from 2", "record"});
}

TEST_CASE(
    "A group of all-gathers is one group of NCCL with one event, also where cuts are uneven, and "
    "an error inside closes it before the abort") {
    Script script;
    auto communicator = script.communicator();
    std::vector<std::size_t> const thirds{0, 2, 4, 6};
    std::vector<std::size_t> const parts{0, 1, 1, 3};
    auto const gather = [&](std::vector<std::size_t> const& cuts) {
        communicator.all_gather(script.at<float>(0), script.at<float>(100), cuts, script.queue());
    };
    communicator.grouped(script.queue(), [&] {
        gather(thirds);
        gather({0, 0, 0, 0});
        gather(parts);
    });
    auto lines = script.journal.take();
    CHECK(std::count(lines.begin(), lines.end(), "group_start") == 1);
    CHECK(std::count(lines.begin(), lines.end(), "group_end") == 1);
    CHECK(lines.front() == "group_start");
    CHECK(lines[1] == "all_gather 0 -> 100, 2 float32");
    CHECK(lines.size() == 6); // two broadcasts
    CHECK(lines[4] == "group_end");
    CHECK(lines[5] == "record");
    gather(thirds); // afterwards each call stands for itself again
    CHECK(script.journal.take() == Script::Lines{"all_gather 0 -> 100, 2 float32", "record"});
    script.nccl.results["broadcast"] = cuda::NcclResult::system_error;
    CHECK_THROWS_AS(communicator.grouped(script.queue(),
                                         [&] {
                                             gather(thirds);
                                             gather(parts);
                                         }),
                    cuda::NcclError);
    lines = script.journal.take();
    REQUIRE(lines.size() >= 3);
    CHECK(lines[lines.size() - 2] == "group_end");
    CHECK(lines.back() == "abort");
}

} // namespace zero::test::nccl_calls_test
