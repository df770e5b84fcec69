#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/detail/partition/place_in_bucket.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/padding.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

// A user-defined partitioner that breaks its contract is rejected when the layout is made.
// Otherwise it would change the results of the training.

namespace zero::test::partition_check_test {

namespace {

enum class Mistake {
    none,
    late_start,
    descending,
    unaligned_cut,
    short_end,
    overlap,
    unaligned_piece,
    lost_piece,
    twice,
    resized,
    uneven,
    cut_parameter
};

/// Gives everything to rank 0, with one mistake.
template <Mistake M>
struct Mistaken {
    using policy_category = PartitionerCategory;
    struct State {};
    static constexpr bool cuts_parameters = M != Mistake::cut_parameter;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = M == Mistake::uneven;

    static State begin(std::span<std::size_t const> /*elements*/, std::size_t /*world*/) noexcept {
        return {};
    }
    static void partition(std::span<PartitionItem> items, State& /*state*/,
                          std::span<std::size_t> cuts) {
        std::size_t const end = zero::detail::place_in_order(items);
        for (std::size_t& cut : cuts) {
            cut = end;
        }
        cuts.front() = M == Mistake::late_start ? granularity : 0;
        switch (M) {
        case Mistake::descending: cuts[1] = end + granularity; break;
        case Mistake::unaligned_cut: cuts[1] = 65; break;
        case Mistake::short_end: cuts[1] = cuts[2] = end - granularity; break;
        case Mistake::overlap: items[1].offset = 0; break;
        case Mistake::unaligned_piece: items[0].offset = 1; break;
        case Mistake::lost_piece: items[1].index = 7; break;
        case Mistake::twice: items[1].index = 0; break;
        case Mistake::resized: items[1].elements = 0; break;
        case Mistake::cut_parameter: cuts[1] = granularity; break;
        default: break;
        }
    }
};
static_assert(Partitioner<Mistaken<Mistake::none>>);

/// Makes a layout of two parameters with 100 and 50 elements in one bucket of 192 elements, padding
/// included.
template <Mistake M>
std::string message() {
    try {
        (void)make_layout<Mistaken<M>, SingleBucketer>({{"second", 50, {0}}, {"first", 100, {0}}},
                                                       {.world = 2});
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("Each violation of the partitioner contract is rejected with its own message") {
    CHECK(message<Mistake::none>() == "accepted");
    std::string const cuts = "; cuts must begin with 0, not descend, and be multiples of 64.";
    CHECK(message<Mistake::late_start>()
          == "zero: the partitioner's cut number 0 of a bucket is 64" + cuts);
    CHECK(message<Mistake::descending>()
          == "zero: the partitioner's cut number 2 of a bucket is 192" + cuts);
    CHECK(message<Mistake::unaligned_cut>()
          == "zero: the partitioner's cut number 1 of a bucket is 65" + cuts);
    std::string const pieces =
        "; pieces must start at multiples of 64, lie inside the bucket, and do not overlap.";
    CHECK(message<Mistake::short_end>()
          == "zero: the partitioner placed 'second' (50 elements) at 128 of a bucket of 128"
                 + pieces);
    CHECK(message<Mistake::overlap>()
          == "zero: the partitioner placed 'second' (50 elements) at 0 of a bucket of 192"
                 + pieces);
    CHECK(message<Mistake::unaligned_piece>()
          == "zero: the partitioner placed 'first' (100 elements) at 1 of a bucket of 192"
                 + pieces);
    std::string const kept =
        " elements; it may reorder the pieces of a bucket, but keeps each once, with its elements.";
    CHECK(message<Mistake::lost_piece>()
          == "zero: the partitioner returned piece number 7 of 2 with 50" + kept);
    CHECK(message<Mistake::twice>()
          == "zero: the partitioner returned piece number 0 of 2 with 50" + kept);
    CHECK(message<Mistake::resized>()
          == "zero: the partitioner returned piece number 1 of 2 with 0" + kept);
    CHECK(message<Mistake::uneven>()
          == "zero: the partitioner says is_even, but gives 192 elements of a bucket to rank 0 and "
             "0 to rank 1; make all extents equal, or set is_even to false.");
    CHECK(message<Mistake::cut_parameter>()
          == "zero: the partitioner says that it cuts no parameter, but cuts 'first' at 64; cut "
             "between pieces, or make cuts_parameters true.");
}

} // namespace zero::test::partition_check_test
