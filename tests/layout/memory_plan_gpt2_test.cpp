#include "plan_text.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

// GPT-2 124M, P = 124,439,808, bfloat16 with fp32 AdamW: 2P = 248,879,616; 4P = 497,759,232; 8P =
// 995,518,464. Stages 0 to 2: 9 buckets (25 MiB); no padding on 1 and 4 ranks, 21,248 elements on
// 64, where a rank owns 124,461,056 / 64 = 1,944,704. Stage 3: 15 buckets (units); 33,536 elements
// of padding on 64 ranks, where a rank owns 124,473,344 / 64 = 1,944,896. Leases: the largest
// bucket is the embedding, 38,597,376 elements (38,600,704 on 64 ranks). Open at once: 3 in stages
// 0 to 2, 2 in stage 3, each plus one; stage 3 gathers twice the two buckets of the first unit.

namespace zero::test::memory_plan_gpt2_test {

namespace {

constexpr ElementSizes mixed_precision{2, 2, 2, 2, 4, 8};

std::string text(std::size_t world, std::size_t rank, int stage) {
    auto const model = test::gpt2_124m();
    auto const layout =
        stage == 3
            ? make_layout<ContiguousPartitioner, UnitBucketer>(model, {world, 2, true})
            : make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {world, 2, false});
    return test::text_of(test::default_plan(layout, rank, stage, mixed_precision));
}

} // namespace

TEST_CASE("The plan of GPT-2 124M on one rank is 16P in every stage") {
    // The embedding, 38,597,376 * 2 = 77,194,752 bytes, is in flight throughout. Beside it: buckets
    // as large as five blocks of 14,175,744; in stage 3 two blocks, and for parameters one block
    // and the positions, 1,572,864.
    std::string const states = "parameters 248879616+0, gradients 248879616+0, master weights "
                               "497759232+0, optimizer state 995518464+0";
    for (int const stage : {0, 1, 2}) {
        CHECK(text(1, 0, stage) == states + ", gradient leases 148073472+0");
    }
    CHECK(text(1, 0, 3) == states + ", gradient leases 105546240+0, parameter leases 92943360+0");
}

TEST_CASE("The plan of GPT-2 124M on four ranks is 16P, 7P, 5.5P, 4P") {
    // A quarter of the model: 62,219,904 at two bytes, 124,439,808 at four, 248,879,616 at eight.
    std::string const leases = ", gradient leases 148073472+0";
    for (std::size_t rank = 0; rank < 4; ++rank) {
        CHECK(text(4, rank, 0)
              == "parameters 248879616+0, gradients 248879616+0, master weights 497759232+0, "
                 "optimizer state 995518464+0"
                     + leases);
        CHECK(text(4, rank, 1)
              == "parameters 248879616+0, gradients 248879616+0, master weights 124439808+0, "
                 "optimizer state 248879616+0"
                     + leases);
        CHECK(text(4, rank, 2)
              == "parameters 248879616+0, gradients 62219904+0, master weights 124439808+0, "
                 "optimizer state 248879616+0"
                     + leases);
        CHECK(text(4, rank, 3)
              == "parameters 62219904+0, gradients 62219904+0, master weights 124439808+0, "
                 "optimizer state 248879616+0, "
                 "gradient leases 105546240+0, parameter leases 92943360+0");
    }
}

TEST_CASE("The plan of GPT-2 124M on 64 ranks has the padding of nine buckets on the last rank") {
    // Padding 21,248: 42,496 at two bytes, 84,992 at four, 169,984 at eight.
    std::string const full = "parameters 248879616+42496, gradients 248879616+42496, ";
    std::string const leases = ", gradient leases 148094976+0";
    CHECK(text(64, 5, 0)
          == full + "master weights 497759232+84992, optimizer state 995518464+169984" + leases);
    // Rank 0: 1,944,704 elements; rank 63: 1,944,704 - 21,248 = 1,923,456.
    CHECK(text(64, 0, 1) == full + "master weights 7778816+0, optimizer state 15557632+0" + leases);
    CHECK(text(64, 63, 1)
          == full + "master weights 7693824+84992, optimizer state 15387648+169984" + leases);
    CHECK(text(64, 0, 2)
          == "parameters 248879616+42496, gradients 3889408+0, master weights 7778816+0, optimizer "
             "state 15557632+0"
                 + leases);
    CHECK(text(64, 63, 2)
          == "parameters 248879616+42496, gradients 3846912+42496, master weights 7693824+84992, "
             "optimizer state 15387648+169984"
                 + leases);
}

TEST_CASE("The plan of GPT-2 124M in stage 3 on 64 ranks has the padding of fifteen buckets on the "
          "last ranks") {
    // Rank 0: 1,944,896 elements.
    std::string const leases = ", gradient leases 105562112+0, parameter leases 92954624+0";
    CHECK(text(64, 0, 3)
          == "parameters 3889792+0, gradients 3889792+0, master weights 7779584+0, optimizer state "
             "15559168+0"
                 + leases);
    // Rank 63 owns less content than rank 0 in most buckets: 64 less of lnf (1,536 = 24 * 64),
    // 2,304 less of each of twelve blocks (7,087,872 = 64 * 110,784 - 2,304), 0 less of wpe, and
    // 3,328 less of the embedding (38,597,376 = 64 * 603,136 - 3,328). Together 64 + 27,648 + 3,328
    // = 31,040 less, so 1,913,856.
    CHECK(text(64, 63, 3)
          == "parameters 3827712+62080, gradients 3827712+62080, master weights 7655424+124160, "
             "optimizer state 15310848+248320"
                 + leases);
}

TEST_CASE("The model states of all ranks together are 16P in stage 3") {
    auto const layout =
        make_layout<ContiguousPartitioner, UnitBucketer>(test::gpt2_124m(), {64, 2, true});
    std::size_t sum = 0;
    for (std::size_t rank = 0; rank < 64; ++rank) {
        sum += test::default_plan(layout, rank, 3, mixed_precision).model_state_bytes();
    }
    CHECK(sum == 1'991'036'928);
}

TEST_CASE(
    "The round-robin plan of GPT-2 124M on eight ranks is largest on the rank of the embedding") {
    auto const layout =
        make_layout<RoundRobinPartitioner, SizeCappedBucketer>(test::gpt2_124m(), {8, 2, false});
    // Rank 3 owns 63,374,592 elements.
    CHECK(test::text_of(test::default_plan(layout, 3, 1, mixed_precision))
          == "parameters 248879616+0, gradients 248879616+0, master weights 253498368+0, optimizer "
             "state 506996736+0, "
             "gradient leases 148073472+0");
}

} // namespace zero::test::memory_plan_gpt2_test
