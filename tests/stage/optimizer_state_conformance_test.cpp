#include "support/shipped_policies.hpp"
#include "type_policy_conformance.hpp"

namespace zero::test::optimizer_state_conformance_test {

namespace {

template <class State, bool has_same_bits, std::size_t bytes>
struct Entry : TypePolicyEntry<float, State> {
    using Policy = State;
    static constexpr bool has_bits_of_default = has_same_bits;
    static constexpr Bytes of_500{512 * 4, 0, bytes};
};

/// AdamW has two states. A new type of states is one line here.
using Entries = std::tuple<Entry<OptimizerState<float>, true, 2 * 512 * 4>,
                           Entry<OptimizerState<bfloat16>, false, 2 * 512 * 2>,
                           Entry<OptimizerState<bfloat16, RoundToNearest>, false, 2 * 512 * 2>,
                           Entry<BlockScaledState<float16>, false, 2 * (512 * 2 + 512 / 64 * 4)>,
                           Entry<BlockScaledState<power8>, false, 2 * (512 + 512 / 64 * 4)>>;

} // namespace

TEMPLATE_LIST_TEST_CASE(
    "States of any type have the same bits in every stage, partitioner, bucket size and storage",
    "[stage][state]", Entries) {
    check_same_bits<TestType>();
}

TEMPLATE_LIST_TEST_CASE("A skipped step changes no bit of the states or of the next step",
                        "[stage][state]", Entries) {
    check_skip<TestType>();
}

TEMPLATE_LIST_TEST_CASE("States take the memory that is planned and worked out by hand",
                        "[stage][state]", Entries) {
    check_memory<TestType>();
}

TEST_CASE("Every shipped optimizer-state policy has an entry") {
    CHECK(policies_without_entry<ShippedOptimizerStates, Entries>() == "");
}

} // namespace zero::test::optimizer_state_conformance_test
