#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>

namespace zero::test::partitioner_concept_test {

using test::Archetype;

namespace {

struct Category {
    using policy_category = PartitionerCategory;
};
struct CarriedState {};
struct Carries {
    using State = CarriedState;
};
struct Cuts {
    static constexpr bool cuts_parameters = true;
};
struct Group {
    static constexpr bool cuts_group = true;
};
struct Even {
    static constexpr bool is_even = false;
};
struct Begin {
    static CarriedState begin(std::span<std::size_t const>, std::size_t);
};
struct Function {
    static void partition(std::span<PartitionItem>, CarriedState&, std::span<std::size_t>);
};
struct Order {
    static std::vector<std::size_t> order(std::span<std::size_t const>, std::size_t);
};

struct OtherCategory {
    using policy_category = BucketerCategory;
};
struct UniqueState {
    UniqueState() = default;
    UniqueState(UniqueState const&) = delete;
};
struct CarriesUnique {
    using State = UniqueState;
    static UniqueState begin(std::span<std::size_t const>, std::size_t);
    static void partition(std::span<PartitionItem>, UniqueState&, std::span<std::size_t>);
};
struct IntegerCuts {
    static constexpr int cuts_parameters = 1;
};
struct VariableCuts {
    [[maybe_unused]] inline static bool cuts_parameters = true;
};
struct IntegerGroup {
    static constexpr int cuts_group = 1;
};
struct IntegerEven {
    static constexpr int is_even = 0;
};
struct OtherBegin {
    static int begin(std::span<std::size_t const>, std::size_t);
};
struct WorldlessBegin {
    static CarriedState begin(std::span<std::size_t const>);
};
struct WritingBegin {
    static CarriedState begin(std::span<std::size_t>, std::size_t);
};
struct NumberFunction {
    static int partition(std::span<PartitionItem>, CarriedState&, std::span<std::size_t>);
};
struct StatelessFunction {
    static void partition(std::span<PartitionItem>, std::span<std::size_t>);
};
struct OtherStateFunction {
    static void partition(std::span<PartitionItem>, std::size_t&, std::span<std::size_t>);
};
struct MemberFunction {
    void partition(std::span<PartitionItem>, CarriedState&, std::span<std::size_t>);
};
struct SpanOrder {
    static std::span<std::size_t const> order(std::span<std::size_t const>, std::size_t);
};

template <class P>
constexpr bool is_complete() {
    return Partitioner<P> && diagnose_partitioner<P>();
}

} // namespace

TEST_CASE("The shipped partitioners model their concept and have no diagnosis") {
    STATIC_REQUIRE(is_complete<ContiguousPartitioner>());
    STATIC_REQUIRE(is_complete<RoundRobinPartitioner>());
    STATIC_REQUIRE(is_complete<BalancedPartitioner>());
    STATIC_REQUIRE(is_complete<PerTensorPartitioner>());
    STATIC_REQUIRE(is_complete<WholeGroupPartitioner>());
    STATIC_REQUIRE(is_complete<DealtGroupPartitioner>());
    STATIC_REQUIRE(is_complete<ProportionalPartitioner>());
    STATIC_REQUIRE(is_complete<WholeMatrixPartitioner>());
}

TEST_CASE("A partitioner consists of its category, a state, three constants and two functions") {
    STATIC_REQUIRE(is_complete<Archetype<Category, Carries, Cuts, Group, Even, Begin, Function>>());
}

TEST_CASE("A type that lacks one part of a partitioner does not model the concept") {
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Carries, Cuts, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Cuts, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Carries, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Carries, Cuts, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Carries, Cuts, Group, Begin, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Carries, Cuts, Group, Even, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin>>);
    STATIC_REQUIRE_FALSE(Partitioner<int>);
}

TEST_CASE("A type with one wrong part of a partitioner does not model the concept") {
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<OtherCategory, Carries, Cuts, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(Partitioner<Archetype<Category, CarriesUnique, Cuts, Group, Even>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, IntegerCuts, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, VariableCuts, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, IntegerGroup, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, IntegerEven, Begin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, OtherBegin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, WorldlessBegin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, WritingBegin, Function>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin, NumberFunction>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin, StatelessFunction>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin, OtherStateFunction>>);
    STATIC_REQUIRE_FALSE(
        Partitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin, MemberFunction>>);
}

TEST_CASE("An ordering partitioner has one more function") {
    STATIC_REQUIRE(OrderingPartitioner<
                   Archetype<Category, Carries, Cuts, Group, Even, Begin, Function, Order>>);
    STATIC_REQUIRE_FALSE(
        OrderingPartitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin, Function>>);
    STATIC_REQUIRE_FALSE(
        OrderingPartitioner<
            Archetype<Category, Carries, Cuts, Group, Even, Begin, Function, SpanOrder>>);
    STATIC_REQUIRE_FALSE(
        OrderingPartitioner<Archetype<Category, Carries, Cuts, Group, Even, Begin, Order>>);
    STATIC_REQUIRE(OrderingPartitioner<DealtGroupPartitioner>);
    STATIC_REQUIRE_FALSE(OrderingPartitioner<WholeGroupPartitioner>);
}

} // namespace zero::test::partitioner_concept_test
