#include "support/archetype.hpp"
#include "support/catch.hpp"

#include <zero/policy/gradient_reduction.hpp>
#include <zero/policy/master_weights.hpp>
#include <zero/policy/master_weights_policy.hpp>
#include <zero/policy/optimizer_state.hpp>
#include <zero/policy/optimizer_state_policy.hpp>
#include <zero/policy/parameters.hpp>

namespace zero::test::type_policies_concept_test {

using test::Archetype;

namespace {

template <class C>
struct Category {
    using policy_category = C;
};
struct AnyOptions {
    struct Options {};
};
template <class T>
struct Named {
    using Type = T;
};

template <MasterForm f>
struct Form {
    static constexpr MasterForm form = f;
};
using Copied = Form<MasterForm::copied>;
using Own = Form<MasterForm::own>;
template <bool scaled>
struct Scaled {
    static constexpr bool is_block_scaled = scaled;
};
struct FormAsNumber {
    static constexpr int form = 1;
};

struct ReductionOptions {
    using Options = GradientReductionOptions;
};
template <class T>
struct GradientPart {
    template <class>
    using GradientType = T;
};
template <class T>
struct CommunicationPart {
    template <class>
    using CommunicationType = T;
};
template <class T>
struct AccumulationPart {
    template <class>
    using AccumulationType = T;
};

using Reduction = Category<GradientReductionCategory>;
template <class Gradient, class Communication, class Accumulation>
using Types = Archetype<Reduction, ReductionOptions, GradientPart<Gradient>,
                        CommunicationPart<Communication>, AccumulationPart<Accumulation>>;

} // namespace

TEST_CASE("The shipped parameter policies model their concept") {
    STATIC_REQUIRE(ParametersPolicy<Parameters<float>>);
    STATIC_REQUIRE(ParametersPolicy<Parameters<bfloat16>>);
    STATIC_REQUIRE(ParametersPolicy<Parameters<float16>>);
    STATIC_REQUIRE(diagnose_parameters<Parameters<bfloat16>>());
}

TEST_CASE("A parameter policy lists storage types, at least one and none twice") {
    STATIC_REQUIRE(ParametersPolicy<Parameters<bfloat16, float>>);
    STATIC_REQUIRE(ParametersPolicy<Parameters<float, float16, bfloat16>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<float, float>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<bfloat16, float, bfloat16>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<bfloat16, double>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<double>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<int>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<void>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<Parameters<float const>>);
    STATIC_REQUIRE_FALSE(
        ParametersPolicy<Archetype<Category<ParametersCategory>, AnyOptions, Named<float>>>);
    STATIC_REQUIRE_FALSE(ParametersPolicy<float>);
}

TEST_CASE("The shipped master weights policies model their concept") {
    STATIC_REQUIRE(MasterWeightsPolicy<MasterWeights<float>>);
    STATIC_REQUIRE(MasterWeightsPolicy<MasterWeights<float16>>);
    STATIC_REQUIRE(MasterWeightsPolicy<NoMasterWeights>);
    STATIC_REQUIRE(MasterWeightsPolicy<SplitMasterWeights>);
    STATIC_REQUIRE(MasterWeightsPolicy<StochasticRounding>);
    STATIC_REQUIRE(diagnose_master_weights<MasterWeights<float>>());
    STATIC_REQUIRE(diagnose_master_weights<NoMasterWeights>());
}

TEST_CASE("A master weights policy consists of its category, options, a form, and a storage type "
          "exactly for a copy") {
    using Master = Category<MasterWeightsCategory>;
    STATIC_REQUIRE(MasterWeightsPolicy<Archetype<Master, AnyOptions, Copied, Named<float>>>);
    STATIC_REQUIRE(MasterWeightsPolicy<Archetype<Master, AnyOptions, Own, Named<void>>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<Archetype<AnyOptions, Copied, Named<float>>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<Archetype<Master, Copied, Named<float>>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<Archetype<Master, AnyOptions, Named<float>>>);
    STATIC_REQUIRE_FALSE(
        MasterWeightsPolicy<Archetype<Master, AnyOptions, FormAsNumber, Named<float>>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<Archetype<Master, AnyOptions, Copied>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<Archetype<Master, AnyOptions, Copied, Named<void>>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<Archetype<Master, AnyOptions, Own, Named<float>>>);
    STATIC_REQUIRE_FALSE(
        MasterWeightsPolicy<
            Archetype<Category<ParametersCategory>, AnyOptions, Copied, Named<float>>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<MasterWeights<double>>);
    STATIC_REQUIRE_FALSE(MasterWeightsPolicy<float>);
}

TEST_CASE("The shipped optimizer state policies model their concept") {
    STATIC_REQUIRE(OptimizerStatePolicy<OptimizerState<float>>);
    STATIC_REQUIRE(OptimizerStatePolicy<OptimizerState<bfloat16>>);
    STATIC_REQUIRE(OptimizerStatePolicy<BlockScaledState<float16>>);
    STATIC_REQUIRE(OptimizerStatePolicy<BlockScaledState<power8>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<OptimizerState<power8>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<BlockScaledState<power8, RoundToNearest>>);
    STATIC_REQUIRE(OptimizerStatePolicy<OptimizerState<bfloat16, RoundToNearest>>);
    STATIC_REQUIRE(OptimizerStatePolicy<BlockScaledState<float16, RoundToNearest>>);
    STATIC_REQUIRE(diagnose_optimizer_state<BlockScaledState<float16>>());
}

namespace {

template <bool value>
struct Rounded {
    static constexpr bool rounds_stochastically = value;
};

} // namespace

TEST_CASE(
    "States in 16 bits are rounded stochastically unless their policy says to nearest, and float "
    "states are not rounded") {
    using zero::detail::rounds_states_stochastically;
    STATIC_REQUIRE(rounds_states_stochastically<OptimizerState<bfloat16>>);
    STATIC_REQUIRE(rounds_states_stochastically<BlockScaledState<float16>>);
    STATIC_REQUIRE_FALSE(rounds_states_stochastically<OptimizerState<float>>);
    STATIC_REQUIRE_FALSE(rounds_states_stochastically<OptimizerState<bfloat16, RoundToNearest>>);
    STATIC_REQUIRE_FALSE(rounds_states_stochastically<BlockScaledState<float16, RoundToNearest>>);
    using State = Category<OptimizerStateCategory>;
    using Plain = Archetype<State, AnyOptions, Scaled<false>, Named<bfloat16>>;
    STATIC_REQUIRE_FALSE(rounds_states_stochastically<Plain>);
    using OwnRounded = Archetype<State, AnyOptions, Scaled<false>, Named<bfloat16>, Rounded<true>>;
    STATIC_REQUIRE(OptimizerStatePolicy<OwnRounded>);
    STATIC_REQUIRE(rounds_states_stochastically<OwnRounded>);
    STATIC_REQUIRE(OptimizerStatePolicy<
                   Archetype<State, AnyOptions, Scaled<false>, Named<float>, Rounded<false>>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<
                         Archetype<State, AnyOptions, Scaled<false>, Named<float>, Rounded<true>>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<OptimizerState<float, RoundToNearest>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<OptimizerState<bfloat16, int>>);
    STATIC_REQUIRE_FALSE(
        OptimizerStatePolicy<OptimizerState<bfloat16, RoundToNearest, RoundToNearest>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<BlockScaledState<float16, StochasticRounding>>);
}

TEST_CASE("An optimizer state policy consists of its category and a storage type, with a "
          "scale exactly for float16") {
    using State = Category<OptimizerStateCategory>;
    STATIC_REQUIRE(OptimizerStatePolicy<Archetype<State, Scaled<false>, Named<bfloat16>>>);
    STATIC_REQUIRE(OptimizerStatePolicy<Archetype<State, Scaled<true>, Named<float16>>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<Archetype<Scaled<false>, Named<float>>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<Archetype<State, Named<float>>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<Archetype<State, Scaled<false>>>);
    STATIC_REQUIRE_FALSE(
        OptimizerStatePolicy<Archetype<Category<OptimizerCategory>, Scaled<false>, Named<float>>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<OptimizerState<float16>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<OptimizerState<double>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<BlockScaledState<float>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<BlockScaledState<bfloat16>>);
    STATIC_REQUIRE_FALSE(OptimizerStatePolicy<float>);
}

TEST_CASE("A gradient reduction derives its default types from the parameter type") {
    STATIC_REQUIRE(std::is_same_v<GradientReduction<>::GradientType<bfloat16>, bfloat16>);
    STATIC_REQUIRE(std::is_same_v<GradientReduction<>::CommunicationType<bfloat16>, bfloat16>);
    STATIC_REQUIRE(std::is_same_v<GradientReduction<>::AccumulationType<bfloat16>, float>);
    STATIC_REQUIRE(std::is_same_v<GradientReduction<float>::CommunicationType<bfloat16>,
                                  float>); // the gradient type
    STATIC_REQUIRE(
        std::is_same_v<GradientReduction<float, float16, bfloat16>::GradientType<bfloat16>, float>);
    STATIC_REQUIRE(
        std::is_same_v<GradientReduction<float, float16, bfloat16>::CommunicationType<bfloat16>,
                       float16>);
    STATIC_REQUIRE(
        std::is_same_v<GradientReduction<float, float16, bfloat16>::AccumulationType<bfloat16>,
                       bfloat16>);
    STATIC_REQUIRE(GradientReductionPolicy<GradientReduction<>>);
    STATIC_REQUIRE(GradientReductionPolicy<GradientReduction<float, float16, bfloat16>>);
    STATIC_REQUIRE(diagnose_gradient_reduction<GradientReduction<>>());
}

TEST_CASE("A gradient reduction consists of its category, the options of the library and three "
          "storage types") {
    STATIC_REQUIRE(GradientReductionPolicy<Types<float, bfloat16, float16>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Types<double, float, float>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Types<float, double, float>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Types<float, float, double>>);
    using G = GradientPart<float>;
    using C = CommunicationPart<float>;
    using A = AccumulationPart<float>;
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Archetype<ReductionOptions, G, C, A>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Archetype<Reduction, G, C, A>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Archetype<Reduction, AnyOptions, G, C, A>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Archetype<Reduction, ReductionOptions, C, A>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Archetype<Reduction, ReductionOptions, G, A>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<Archetype<Reduction, ReductionOptions, G, C>>);
    STATIC_REQUIRE_FALSE(
        GradientReductionPolicy<Archetype<Category<OptimizerCategory>, ReductionOptions, G, C, A>>);
    STATIC_REQUIRE_FALSE(GradientReductionPolicy<float>);
}

} // namespace zero::test::type_policies_concept_test
