#include "plan_text.hpp"

#include "support/catch.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

// Three units: 0 = a tied embedding of 1,000 and frozen positions of 100, 1 = weights of 500, 2 = a
// bias of 10 and the embedding again. One bucket per unit, in gradient-ready order, each up to a
// multiple of W * 64:
//                       bias   weights   embedding   trainable   positions      all
//     content             10       500       1,000       1,510         100    1,610
//     W = 1               64       512       1,024       1,600         128    1,728
//     W = 4              256       512       1,024       1,792         256    2,048
//     W = 64           4,096     4,096       4,096      12,288       4,096   16,384
// All three trainable buckets are in flight at once while unit 1 computes: the bias is being
// reduced. In stage 3 embedding and weights are gathered together with either positions or bias.
// bfloat16 parameters, float gradients that are sent as bfloat16 (one wire bucket), fp32
// accumulation, master weights and moments.

namespace zero::test::memory_plan_frozen_tied_test {

namespace {

constexpr ElementSizes sizes{2, 4, 2, 4, 4, 8};

FlatLayout layout(std::size_t world) {
    return make_layout<ContiguousPartitioner, UnitBucketer>({{"embedding", 1000, {0, 2}, 0, true},
                                                             {"positions", 100, {0}, 0, false},
                                                             {"weights", 500, {1}, 1, true},
                                                             {"bias", 10, {2}, 1, true}},
                                                            {world, 2, true});
}

std::string text(std::size_t world, std::size_t rank, int stage, Storage storage = Storage::owned,
                 std::size_t extra_leases = 0) {
    return test::text_of(
        test::default_plan(layout(world), rank, stage, sizes, storage, true, extra_leases));
}

} // namespace

TEST_CASE("Frozen parameters have memory but no gradient, master weights or moments") {
    // W = 1: 1,610 * 2 and 118 * 2; 1,510 * 4 and 90 * 4; * 8. Leases 1,600 * 4, wire 1,024
    // * 2.
    std::string const expected = "parameters 3220+236, gradients 6040+360, master weights "
                                 "6040+360, optimizer state 12080+720, "
                                 "gradient leases 6400+0";
    for (int const stage : {0, 1, 2}) {
        CHECK(text(1, 0, stage) == expected + ", wire 2048+0");
    }
    CHECK(text(1, 0, 3) == expected + ", parameter leases 3328+0, wire 2048+0"); // 1,664 * 2
}

TEST_CASE("On four ranks the shards hold frozen elements in stage 3 only") {
    // All: (2,048 - 1,610) * 2 = 876; (1,792 - 1,510) * 4 = 1,128.
    CHECK(text(4, 0, 0)
          == "parameters 3220+876, gradients 6040+1128, master weights 6040+1128, optimizer state "
             "12080+2256, gradient leases 7168+0, "
             "wire 2048+0");
    // Shards of 64, 128, 256 and 64 (frozen). Rank 0: 10 + 128 + 256 = 394 of 448; rank 1: 0 + 128
    // + 256 = 384, frozen 36; rank 3: 0 + 116 + 232 = 348.
    CHECK(text(4, 0, 1)
          == "parameters 3220+876, gradients 6040+1128, master weights 1576+216, optimizer state "
             "3152+432, gradient leases 7168+0, wire "
             "2048+0");
    CHECK(text(4, 1, 2)
          == "parameters 3220+876, gradients 1536+256, master weights 1536+256, optimizer state "
             "3072+512, gradient leases 7168+0, wire "
             "2048+0");
    // Stage 3: with frozen elements 458, 420 and 348 of 512 parameters.
    std::string const leases = ", gradient leases 7168+0, parameter leases 3584+0, wire 2048+0";
    CHECK(text(4, 0, 3)
          == "parameters 916+108, gradients 1576+216, master weights 1576+216, optimizer state "
             "3152+432"
                 + leases);
    CHECK(text(4, 1, 3)
          == "parameters 840+184, gradients 1536+256, master weights 1536+256, optimizer state "
             "3072+512"
                 + leases);
    CHECK(text(4, 3, 3)
          == "parameters 696+328, gradients 1392+400, master weights 1392+400, optimizer state "
             "2784+800"
                 + leases);
}

TEST_CASE("On 64 ranks the first rank holds the start of every bucket and the last holds padding") {
    // (16,384 - 1,610) * 2 = 29,548; (12,288 - 1,510) * 4 = 43,112; leases 12,288 * 4 = 49,152;
    // wire 4,096 * 2 = 8,192.
    CHECK(text(64, 0, 0)
          == "parameters 3220+29548, gradients 6040+43112, master weights 6040+43112, optimizer "
             "state 12080+86224, gradient leases 49152+0, "
             "wire 8192+0");
    // Rank 0: 10 + 64 + 64 = 138 of 192, with 64 frozen ones 202 of 256.
    CHECK(text(64, 0, 1)
          == "parameters 3220+29548, gradients 6040+43112, master weights 552+216, optimizer state "
             "1104+432, gradient leases 49152+0, wire "
             "8192+0");
    CHECK(text(64, 0, 2)
          == "parameters 3220+29548, gradients 552+216, master weights 552+216, optimizer state "
             "1104+432, gradient leases 49152+0, wire "
             "8192+0");
    std::string const leases =
        ", gradient leases 49152+0, parameter leases 24576+0, wire 8192+0"; // 12,288 * 2
    CHECK(
        text(64, 0, 3)
        == "parameters 404+108, gradients 552+216, master weights 552+216, optimizer state 1104+432"
               + leases);
    CHECK(text(64, 63, 3)
          == "parameters 0+512, gradients 0+768, master weights 0+768, optimizer state 0+1536"
                 + leases);
}

TEST_CASE("Scattered parameters are caller-owned and need one gathered bucket in stages 1 and 2") {
    std::string const stage0 = "parameters (caller's) 3220+0, gradients 6040+1128, master weights "
                               "6040+1128, optimizer state 12080+2256, "
                               "gradient leases 7168+0, wire 2048+0";
    CHECK(text(4, 0, 0, Storage::scattered) == stage0);
    // 1,024 * 2: frozen buckets are not gathered.
    CHECK(text(4, 0, 1, Storage::scattered)
          == "parameters (caller's) 3220+0, gradients 6040+1128, master weights 1576+216, "
             "optimizer state 3152+432, gradient leases 7168+0, "
             "parameter leases 2048+0, wire 2048+0");
}

TEST_CASE("A large scattered frozen parameter does not enlarge the gathered bucket") {
    // W = 2: 100 -> 128, 5,000 is frozen and not gathered.
    auto const mostly_frozen = make_layout<ContiguousPartitioner, UnitBucketer>(
        {{"a", 100, {0}, 0, true}, {"b", 5000, {1}, 0, false}}, {2, 2, true});
    MemoryPlan const plan = test::default_plan(mostly_frozen, 0, 1, sizes, Storage::scattered);
    CHECK(plan[BufferKind::parameter_leases] == MemoryRow{256, 0, false});
    CHECK(plan[BufferKind::gradient_leases] == MemoryRow{128 * 4, 0, false});
}

TEST_CASE("Extra leases are planned for gradients and, in stage 3, for gathered parameters") {
    // 1,792 and the two largest, 1,024 and 512: 3,328 * 4 and 3,328 * 2.
    CHECK_THAT(text(4, 0, 3, Storage::owned, 2),
               test::contains_text("gradient leases 13312+0, parameter leases 6656+0"));
    CHECK_THAT(text(4, 0, 2, Storage::owned, 2),
               test::contains_text("gradient leases 13312+0, wire"));
}

TEST_CASE("A frozen model plans only its parameters and their gathers") {
    auto const frozen =
        make_layout<ContiguousPartitioner, UnitBucketer>({{"a", 100, {0}, 0, false}}, {2, 2, true});
    CHECK(test::text_of(test::default_plan(frozen, 0, 2, sizes, Storage::owned, true))
          == "parameters 200+56");
    CHECK(test::text_of(test::default_plan(frozen, 1, 3, sizes, Storage::owned, true))
          == "parameters 72+56, parameter leases 256+0");
}

} // namespace zero::test::memory_plan_frozen_tied_test
