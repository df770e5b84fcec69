#include "support/archetype.hpp"
#include "support/catch.hpp"

#include "zero/layout/partitioner.hpp"

using namespace zero;
using test::Archetype;

namespace {

struct Category {
    using policy_category = PartitionerCategory;
};
struct Types {
    struct Options {};
};
struct Cuts {
    static constexpr bool cuts_parameters = true;
};
struct Even {
    static constexpr bool is_even = false;
};
struct Function {
    static void partition(std::span<PartitionItem>, std::size_t&, std::span<std::size_t>);
};

struct OtherCategory {
    using policy_category = BucketerCategory;
};
struct IntegerCuts {
    static constexpr int cuts_parameters = 1;
};
struct VariableCuts {
    [[maybe_unused]] inline static bool cuts_parameters = true;
};
struct IntegerEven {
    static constexpr int is_even = 0;
};
struct NumberFunction {
    static int partition(std::span<PartitionItem>, std::size_t&, std::span<std::size_t>);
};
struct TurnlessFunction {
    static void partition(std::span<PartitionItem>, std::span<std::size_t>);
};
struct MemberFunction {
    void partition(std::span<PartitionItem>, std::size_t&, std::span<std::size_t>);
};

} // namespace

TEST_CASE("the shipped partitioners model their concept, and nothing is left to diagnose") {
    STATIC_REQUIRE(Partitioner<ContiguousPartitioner>);
    STATIC_REQUIRE(Partitioner<RoundRobinPartitioner>);
    STATIC_REQUIRE(diagnose_partitioner<ContiguousPartitioner>());
    STATIC_REQUIRE(diagnose_partitioner<RoundRobinPartitioner>());
}

TEST_CASE("a partitioner is its category, options, two constants and one function") {
    STATIC_REQUIRE(Partitioner<Archetype<Category, Types, Cuts, Even, Function>>);
    STATIC_REQUIRE(diagnose_partitioner<Archetype<Category, Types, Cuts, Even, Function>>());
}

TEST_CASE("a partitioner that lacks one part is none") {
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Types, Cuts, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Cuts, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Cuts, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Cuts, Even>>);
    STATIC_REQUIRE_FALSE(Partitioner<int>);
}

TEST_CASE("a partitioner with one wrong part is none") {
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<OtherCategory, Types, Cuts, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, IntegerCuts, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, VariableCuts, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Cuts, IntegerEven, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Cuts, Even, NumberFunction>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Cuts, Even, TurnlessFunction>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Types, Cuts, Even, MemberFunction>>);
}
