#include "support/catch.hpp"
#include "support/partition_numbers.hpp"
#include "support/partitioner_compatibility.hpp"

#include <fstream>
#include <iterator>

namespace zero::test::partitioner_table_test {

namespace {

std::string page() {
    std::ifstream file(ZERO_SOURCE_DIR "/docs/partitioners.md");
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

TEST_CASE("The partitioner table says which policies fit together") {
    CHECK(
        compatibility_table()
        == "| partitioner | stages | collectives | whole parameters | bucketer | adopted block |\n"
           "|---|---|---|---|---|---|\n"
           "| `ContiguousPartitioner` | 0, 1, 2, 3 | native even | no | any | yes |\n"
           "| `PerTensorPartitioner` | 0, 1, 2, 3 | native even | no | its own | no |\n"
           "| `WholeGroupPartitioner` | 0, 1, 2 | grouped uneven | no | any | no |\n"
           "| `DealtGroupPartitioner` | 0, 1, 2 | grouped uneven | no | any | no |\n"
           "| `ProportionalPartitioner` | 0, 1, 2, 3 | grouped uneven | no | any | no |\n"
           "| `RoundRobinPartitioner` | 0, 1, 2, 3 | grouped uneven | yes | any | no |\n"
           "| `BalancedPartitioner` | 0, 1, 2, 3 | grouped uneven | yes | any | no |\n"
           "| `WholeMatrixPartitioner` | 0, 1, 2, 3 | grouped uneven | matrices | any | no |\n");
}

TEST_CASE("Policies that do not fit together have one named conflict") {
    CHECK(zero::detail::conflict_of({.stage = 4}) == zero::detail::Conflict::no_such_stage);
    CHECK(zero::detail::conflict_of({.stage = -1}) == zero::detail::Conflict::no_such_stage);
    CHECK(zero::detail::conflict_of({.stage = 3, .bucketer_may_span_units = true})
          == zero::detail::Conflict::bucket_spans_units);
    CHECK(zero::detail::conflict_of({.stage = 3, .partitioner_cuts_group = true})
          == zero::detail::Conflict::units_on_few_ranks);
    CHECK(zero::detail::conflict_of({.stage = 2, .partitioner_cuts_group = true})
          == zero::detail::Conflict::none);
    CHECK(zero::detail::conflict_of({.stage = 0, .partitioner_brings_other_bucketer = true})
          == zero::detail::Conflict::bucketer_not_the_partitioners);
    CHECK(zero::detail::conflict_of({.stage = 1, .optimizer_is_whole_tensor = true})
          == zero::detail::Conflict::optimizer_needs_whole_tensor);
    CHECK(zero::detail::conflict_of(
              {.stage = 1, .partitioner_cuts_parameters = false, .optimizer_is_whole_tensor = true})
          == zero::detail::Conflict::none);
    CHECK(zero::detail::conflict_of({.stage = 0, .optimizer_is_whole_tensor = true})
          == zero::detail::Conflict::none);
    CHECK(zero::detail::conflict_of({.stage = 1, .is_on_device = true})
          == zero::detail::Conflict::none);
    CHECK(zero::detail::conflict_of({.optimizer_is_whole_tensor = true, .is_stored_by_block = true})
          == zero::detail::Conflict::whole_tensor_storage);
    CHECK(zero::detail::conflict_of({.master = zero::detail::Conflict::master_of_itself})
          == zero::detail::Conflict::master_of_itself);
}

TEST_CASE("The documentation of partitioners shows the tables that the program prints") {
    CHECK(page().find(compatibility_table()) != std::string::npos);
    CHECK(page().find(partition_tables()) != std::string::npos);
}

} // namespace zero::test::partitioner_table_test
