#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/detail/lamb_steps.hpp>
#include <zero/ops/detail/update_parts.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/optimizer.hpp>

#include <string>
#include <type_traits>

namespace zero::test::optimizer_concept_test {

using test::Archetype;

namespace {

struct SomeOptions {};
struct SomeHyper {};
struct TextHyper {
    std::string text;
};

struct Category {
    using policy_category = OptimizerCategory;
};
struct OptionsType {
    using Options = SomeOptions;
};
/// All members that name the type of the constants of a step, so that a test can replace them
/// together.
template <class H>
struct Step {
    using Hyper = H;
    static H hyper(SomeOptions const&, double, std::uint64_t) noexcept;
    template <class F, std::size_t N>
    void operator()(F, F&, F (&)[N], H const&) const;
};
struct States {
    static constexpr std::size_t states = 2;
};
struct Whole {
    static constexpr bool whole_tensor = false;
};
struct Validate {
    static void validate(SomeOptions const&);
};

struct OtherCategory {
    using policy_category = LossScalerCategory;
};
struct NoStates {
    static constexpr std::size_t states = 0;
};
struct IntegerStates {
    static constexpr int states = 2;
};
struct IntegerWhole {
    static constexpr int whole_tensor = 0;
};
struct AnsweringValidate {
    static bool validate(SomeOptions const&);
};
struct Hyperless { // names no type 'Hyper'
    static SomeHyper hyper(SomeOptions const&, double, std::uint64_t) noexcept;
    template <class F, std::size_t N>
    void operator()(F, F&, F (&)[N], SomeHyper const&) const;
};
// A function of a derived type hides the one of `Step`.
struct ThrowingHyper : Step<SomeHyper> {
    static SomeHyper hyper(SomeOptions const&, double, std::uint64_t);
};
struct OtherHyper : Step<SomeHyper> {
    static int hyper(SomeOptions const&, double, std::uint64_t) noexcept;
};
struct TimelessHyper : Step<SomeHyper> {
    static SomeHyper hyper(SomeOptions const&, double) noexcept;
};
struct ChangingFunctor : Step<SomeHyper> {
    template <class F, std::size_t N>
    void operator()(F, F&, F (&)[N], SomeHyper const&);
};
struct ThreeStateFunctor : Step<SomeHyper> {
    template <class F>
    void operator()(F, F&, F (&)[3], SomeHyper const&) const;
};
struct DoubleFunctor : Step<SomeHyper> {
    void operator()(double, double&, double (&)[2], SomeHyper const&) const;
};

struct NeedsWhole {
    static constexpr bool whole_tensor = true;
};
struct HyperAlone {
    using Hyper = SomeHyper;
    static SomeHyper hyper(SomeOptions const&, double, std::uint64_t) noexcept;
};
/// Has no functor, but the two functions of an optimizer of whole parameters.
struct Tensors : HyperAlone {
    template <class Tensor>
    static void update_tensor(Tensor const&, SomeHyper const&) noexcept;
};
struct Scratch {
    static std::size_t scratch_floats(std::size_t, std::size_t) noexcept;
};
struct ThrowingTensors : HyperAlone {
    template <class Tensor>
    static void update_tensor(Tensor const&, SomeHyper const&);
};
struct ObjectTensors : HyperAlone {
    template <class Tensor>
    void update_tensor(Tensor const&, SomeHyper const&) const noexcept;
};
struct OtherTensors : HyperAlone {
    static void update_tensor(float*, SomeHyper const&) noexcept;
};
struct ThrowingScratch {
    static std::size_t scratch_floats(std::size_t, std::size_t);
};
struct ShapelessScratch {
    static std::size_t scratch_floats(std::size_t) noexcept;
};
struct FloatScratch {
    static float scratch_floats(std::size_t, std::size_t) noexcept;
};

template <class T, class S>
using WithTensors = Archetype<Category, OptionsType, T, States, NeedsWhole, Validate, S>;

template <class S>
using WithStep = Archetype<Category, OptionsType, S, States, Whole, Validate>;

} // namespace

TEMPLATE_TEST_CASE("The shipped optimizers model their concept, and nothing is left to diagnose",
                   "", Adagrad, Adam, AdamW, Lamb, Lion, Muon, Sgd) {
    STATIC_REQUIRE(Optimizer<TestType>);
    STATIC_REQUIRE(diagnose_optimizer<TestType>());
    STATIC_REQUIRE(std::is_empty_v<TestType>);
}

TEST_CASE("An optimizer consists of its category, options, constants of a step, two constants, two "
          "functions and a functor") {
    STATIC_REQUIRE(Optimizer<WithStep<Step<SomeHyper>>>);
    STATIC_REQUIRE(diagnose_optimizer<WithStep<Step<SomeHyper>>>());
}

TEST_CASE("A type that lacks one requirement is not an optimizer") {
    using Good = Step<SomeHyper>;
    STATIC_REQUIRE_FALSE(Optimizer<Archetype<OptionsType, Good, States, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(Optimizer<Archetype<Category, Good, States, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(Optimizer<Archetype<Category, OptionsType, States, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(Optimizer<Archetype<Category, OptionsType, Good, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(Optimizer<Archetype<Category, OptionsType, Good, States, Validate>>);
    STATIC_REQUIRE_FALSE(Optimizer<Archetype<Category, OptionsType, Good, States, Whole>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<Hyperless>>);
    STATIC_REQUIRE_FALSE(Optimizer<int>);
}

TEST_CASE("A type with one wrong requirement is not an optimizer") {
    using Good = Step<SomeHyper>;
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<OtherCategory, OptionsType, Good, States, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Good, IntegerStates, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Good, NoStates, Whole, Validate>>);
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Good, States, IntegerWhole, Validate>>);
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Good, States, Whole, AnsweringValidate>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<Step<TextHyper>>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<ThrowingHyper>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<OtherHyper>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<TimelessHyper>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<ChangingFunctor>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<ThreeStateFunctor>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithStep<DoubleFunctor>>);
}

TEST_CASE("An optimizer of whole parameters has two functions instead of the functor") {
    STATIC_REQUIRE(Optimizer<WithTensors<Tensors, Scratch>>);
    STATIC_REQUIRE(TensorOptimizer<WithTensors<Tensors, Scratch>>);
    STATIC_REQUIRE_FALSE(ElementOptimizer<WithTensors<Tensors, Scratch>>);
    STATIC_REQUIRE(diagnose_optimizer<WithTensors<Tensors, Scratch>>());
    STATIC_REQUIRE(ElementOptimizer<WithStep<Step<SomeHyper>>>);
    STATIC_REQUIRE_FALSE(TensorOptimizer<WithStep<Step<SomeHyper>>>);
}

TEST_CASE(
    "A type that lacks a requirement or has a wrong one is not an optimizer of whole parameters") {
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Tensors, States, NeedsWhole, Validate>>);
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Tensors, States, Whole, Validate, Scratch>>);
    STATIC_REQUIRE_FALSE(
        Optimizer<Archetype<Category, OptionsType, Tensors, NeedsWhole, Validate, Scratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<HyperAlone, Scratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<Step<SomeHyper>, Scratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<ThrowingTensors, Scratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<ObjectTensors, Scratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<OtherTensors, Scratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<Tensors, ThrowingScratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<Tensors, ShapelessScratch>>);
    STATIC_REQUIRE_FALSE(Optimizer<WithTensors<Tensors, FloatScratch>>);
}

} // namespace zero::test::optimizer_concept_test
