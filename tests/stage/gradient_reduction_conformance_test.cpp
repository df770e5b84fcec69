#include "support/shipped_policies.hpp"
#include "type_policy_conformance.hpp"

namespace zero::test::gradient_reduction_conformance_test {

namespace {

template <class Reduction, bool has_same_bits, std::size_t bytes>
struct Entry : TypePolicyEntry<bfloat16, Reduction> {
    using Policy = Reduction;
    static constexpr bool has_bits_of_default = has_same_bits;
    static constexpr Bytes of_500{bytes, 512 * 4, 512 * 8};
};

/// Gradients of bfloat16 parameters. A new combination of types is one line here.
using Entries = std::tuple<Entry<GradientReduction<>, true, 512 * 4>,
                           Entry<GradientReduction<float>, false, 512 * 4>,
                           Entry<GradientReduction<void, float16>, false, 512 * 4>,
                           Entry<GradientReduction<float, float, bfloat16>, false, 512 * 2>>;

} // namespace

TEMPLATE_LIST_TEST_CASE("Gradients of any type train to the same bits in every stage, partitioner, "
                        "bucket size and storage",
                        "[stage][reduction]", Entries) {
    check_same_bits<TestType>();
}

TEMPLATE_LIST_TEST_CASE("A skipped step leaves nothing of its gradients, for all types",
                        "[stage][reduction]", Entries) {
    check_skip<TestType>();
}

TEMPLATE_LIST_TEST_CASE("Gradients take the memory that is planned and worked out by hand",
                        "[stage][reduction]", Entries) {
    check_memory<TestType>();
}

TEST_CASE("Every shipped combination of gradient types has an entry") {
    CHECK(policies_without_entry<ShippedGradientReductions, Entries>() == "");
}

} // namespace zero::test::gradient_reduction_conformance_test
