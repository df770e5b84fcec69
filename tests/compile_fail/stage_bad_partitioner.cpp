// expect: zero: a Partitioner needs 'static void partition(
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

struct Halves {
    using policy_category = zero::PartitionerCategory;
    struct Options {};
    static constexpr bool cuts_parameters = true;
    static constexpr bool is_even = true;
};

using Stage = zero::ZeroStage<2, Halves>;

int main() { train<Stage>(zero::LoopbackCommunicator::make_group(1).front()); }
