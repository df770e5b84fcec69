#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/stage/zero_stage.hpp>

// Split master weights give the bits of float ones in caller-owned memory as well;
// master_weights_conformance_test.cpp compares the rest.

namespace zero::test::split_master_test {

namespace {

constexpr int world = 3;

template <int N, class... More>
using Split = ZeroStage<N, Parameters<bfloat16>, SplitMasterWeights, More...>;
template <int N, class... More>
using Whole = ZeroStage<N, Parameters<bfloat16>, MasterWeights<float>, More...>;

} // namespace

TEST_CASE("Split master weights give the bits of float master weights with caller-owned memory") {
    for (auto const storage : {Storage::adopted, Storage::scattered}) {
        auto const expected = trained<Whole<0>>(world, {.storage = storage});
        CHECK((trained<Split<0>>(world, {.storage = storage}) == expected));
        CHECK((trained<Split<1>>(world, {.storage = storage}) == expected));
        CHECK((trained<Split<2>>(world, {.storage = storage, .poison = true}) == expected));
    }
}

} // namespace zero::test::split_master_test
