#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>

namespace zero::test::loss_scaler_concept_test {

using test::Archetype;

namespace {

struct SomeOptions {};
struct SomeState {
    float scale;
};
struct ScalelessState {
    float factor;
};
struct TextState {
    float scale;
    std::string text;
};

struct Category {
    using policy_category = LossScalerCategory;
};
struct OptionsType {
    using Options = SomeOptions;
};
/// All members that name the state, so that a test can replace them together.
template <class S>
struct Rule {
    using State = S;
    static S initial(SomeOptions const&);
    static S next(S, bool, SomeOptions const&) noexcept;
    static bool is_exhausted(S, SomeOptions const&) noexcept;
};
struct Skips {
    static constexpr bool skips_overflow = true;
};
struct Validate {
    static void validate(SomeOptions const&);
};

struct OtherCategory {
    using policy_category = OptimizerCategory;
};
struct IntegerSkips {
    static constexpr int skips_overflow = 1;
};
struct AnsweringValidate {
    static bool validate(SomeOptions const&);
};
// A function of a derived type hides the one of `Rule`.
struct VoidInitial : Rule<SomeState> {
    static void initial(SomeOptions const&);
};
struct ThrowingNext : Rule<SomeState> {
    static SomeState next(SomeState, bool, SomeOptions const&);
};
struct BoolNext : Rule<SomeState> {
    static bool next(SomeState, bool, SomeOptions const&) noexcept;
};
struct BlindNext : Rule<SomeState> {
    static SomeState next(SomeState, SomeOptions const&) noexcept;
};
struct ThrowingExhausted : Rule<SomeState> {
    static bool is_exhausted(SomeState, SomeOptions const&);
};
struct IntegerExhausted : Rule<SomeState> {
    static int is_exhausted(SomeState, SomeOptions const&) noexcept;
};
struct Stateless {
    static SomeState initial(SomeOptions const&);
    static SomeState next(SomeState, bool, SomeOptions const&) noexcept;
    static bool is_exhausted(SomeState, SomeOptions const&) noexcept;
};

template <class R>
using WithRule = Archetype<Category, OptionsType, R, Skips, Validate>;

} // namespace

TEST_CASE("The shipped loss scalers model their concept, and nothing is left to diagnose") {
    STATIC_REQUIRE(LossScaler<NoLossScaler>);
    STATIC_REQUIRE(LossScaler<StaticLossScaler>);
    STATIC_REQUIRE(LossScaler<DynamicLossScaler>);
    STATIC_REQUIRE(diagnose_loss_scaler<NoLossScaler>());
    STATIC_REQUIRE(diagnose_loss_scaler<StaticLossScaler>());
    STATIC_REQUIRE(diagnose_loss_scaler<DynamicLossScaler>());
}

TEST_CASE(
    "A loss scaler consists of its category, options, state, one constant and four functions") {
    STATIC_REQUIRE(LossScaler<WithRule<Rule<SomeState>>>);
    STATIC_REQUIRE(diagnose_loss_scaler<WithRule<Rule<SomeState>>>());
}

TEST_CASE("A type that lacks one requirement is not a loss scaler") {
    STATIC_REQUIRE_FALSE(LossScaler<Archetype<OptionsType, Rule<SomeState>, Skips, Validate>>);
    STATIC_REQUIRE_FALSE(LossScaler<Archetype<Category, Rule<SomeState>, Skips, Validate>>);
    STATIC_REQUIRE_FALSE(LossScaler<Archetype<Category, OptionsType, Skips, Validate>>);
    STATIC_REQUIRE_FALSE(LossScaler<Archetype<Category, OptionsType, Rule<SomeState>, Validate>>);
    STATIC_REQUIRE_FALSE(LossScaler<Archetype<Category, OptionsType, Rule<SomeState>, Skips>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<Stateless>>);
    STATIC_REQUIRE_FALSE(LossScaler<int>);
}

TEST_CASE("The state of a loss scaler has a scale and is trivially copyable") {
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<Rule<ScalelessState>>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<Rule<TextState>>>);
}

TEST_CASE("A type with one wrong requirement is not a loss scaler") {
    STATIC_REQUIRE_FALSE(
        LossScaler<Archetype<OtherCategory, OptionsType, Rule<SomeState>, Skips, Validate>>);
    STATIC_REQUIRE_FALSE(
        LossScaler<Archetype<Category, OptionsType, Rule<SomeState>, IntegerSkips, Validate>>);
    STATIC_REQUIRE_FALSE(
        LossScaler<Archetype<Category, OptionsType, Rule<SomeState>, Skips, AnsweringValidate>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<VoidInitial>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<ThrowingNext>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<BoolNext>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<BlindNext>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<ThrowingExhausted>>);
    STATIC_REQUIRE_FALSE(LossScaler<WithRule<IntegerExhausted>>);
}

} // namespace zero::test::loss_scaler_concept_test
