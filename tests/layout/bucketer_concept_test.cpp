#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/core/policy_category.hpp>
#include <zero/layout/bucketer.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

#include <cstddef>
#include <span>

namespace zero::test::bucketer_concept_test {

using test::Archetype;

namespace {

struct SomeOptions {};

struct Category {
    using policy_category = BucketerCategory;
};
struct Types {
    using Options = SomeOptions;
};
struct Span {
    static constexpr bool may_span_units = true;
};
struct Take {
    static std::size_t take(std::span<BucketItem const>, SomeOptions const&, std::size_t);
};
struct Validate {
    static void validate(SomeOptions const&);
};

struct OtherCategory {
    using policy_category = PartitionerCategory;
};
struct IntegerSpan {
    static constexpr int may_span_units = 1;
};
struct IntegerTake {
    static int take(std::span<BucketItem const>, SomeOptions const&, std::size_t);
};
struct WritingTake {
    static std::size_t take(std::span<BucketItem>, SomeOptions const&, std::size_t);
};
struct OptionWritingTake {
    static std::size_t take(std::span<BucketItem const>, SomeOptions&, std::size_t);
};
struct BytelessTake {
    static std::size_t take(std::span<BucketItem const>, SomeOptions const&);
};
struct AnsweringValidate {
    static bool validate(SomeOptions const&);
};

} // namespace

TEST_CASE("The shipped bucketers model their concept and have no diagnosis") {
    STATIC_REQUIRE(Bucketer<SizeCappedBucketer>);
    STATIC_REQUIRE(Bucketer<UnitBucketer>);
    STATIC_REQUIRE(Bucketer<SingleBucketer>);
    STATIC_REQUIRE(Bucketer<ParameterBucketer>);
    STATIC_REQUIRE(diagnose_bucketer<SizeCappedBucketer>());
    STATIC_REQUIRE(diagnose_bucketer<UnitBucketer>());
    STATIC_REQUIRE(diagnose_bucketer<SingleBucketer>());
    STATIC_REQUIRE(diagnose_bucketer<ParameterBucketer>());
}

TEST_CASE("A bucketer consists of its category, options, one constant and two functions") {
    STATIC_REQUIRE(Bucketer<Archetype<Category, Types, Span, Take, Validate>>);
    STATIC_REQUIRE(diagnose_bucketer<Archetype<Category, Types, Span, Take, Validate>>());
}

TEST_CASE("A type that lacks one part of a bucketer does not model the concept") {
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Types, Span, Take, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Span, Take, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Take, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, Take>>);
    STATIC_REQUIRE_FALSE(Bucketer<int>);
}

TEST_CASE("A type with one wrong part of a bucketer does not model the concept") {
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<OtherCategory, Types, Span, Take, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, IntegerSpan, Take, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, IntegerTake, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, WritingTake, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, OptionWritingTake, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, BytelessTake, Validate>>);
    STATIC_REQUIRE_FALSE(Bucketer<Archetype<Category, Types, Span, Take, AnsweringValidate>>);
}

} // namespace zero::test::bucketer_concept_test
