#include "support/shipped_policies.hpp"
#include "type_policy_conformance.hpp"

namespace zero::test::master_weights_conformance_test {

namespace {

/// @tparam has_same_bits whether it trains to the bits of the default, MasterWeights<float>
/// @tparam keeps whether the policy keeps more than the parameter
/// @tparam bytes the master weights of 500 elements, in bytes, padding included
template <class P, class Master, bool has_same_bits, bool keeps, std::size_t bytes>
struct Entry : TypePolicyEntry<P, Master> {
    using Policy = Master;
    static constexpr bool has_bits_of_default = has_same_bits;
    static constexpr bool keeps_more = keeps;
    static constexpr Bytes of_500{512 * 4, bytes, 512 * 8};
};

/// A new policy is one line here.
using Entries = std::tuple<Entry<bfloat16, MasterWeights<float>, true, true, 512 * 4>,
                           Entry<bfloat16, MasterWeights<float16>, false, true, 512 * 2>,
                           Entry<bfloat16, SplitMasterWeights, true, true, 512 * 2 + 512 / 8>,
                           Entry<bfloat16, NoMasterWeights, false, false, 0>,
                           Entry<bfloat16, StochasticRounding, false, false, 0>,
                           Entry<float16, StochasticRounding, false, false, 0>>;

} // namespace

TEMPLATE_LIST_TEST_CASE(
    "Master weights have the same bits in every stage, partitioner, bucket size and storage",
    "[stage][master]", Entries) {
    check_same_bits<TestType>();
}

TEMPLATE_LIST_TEST_CASE("A skipped step changes no bit of the master weights or of the next step",
                        "[stage][master]", Entries) {
    check_skip<TestType>();
}

TEMPLATE_LIST_TEST_CASE("Master weights take the memory that is planned and worked out by hand",
                        "[stage][master]", Entries) {
    check_memory<TestType>();
}

TEMPLATE_LIST_TEST_CASE("Parameters that the caller changed become their master weights",
                        "[stage][master]", Entries) {
    check_changed_parameters<TestType>();
}

TEST_CASE("Every shipped master-weight policy has an entry") {
    CHECK(policies_without_entry<ShippedMasterWeights, Entries>() == "");
}

} // namespace zero::test::master_weights_conformance_test
