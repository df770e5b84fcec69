// expect: zero: a Partitioner needs 'static void partition(std::span<PartitionItem>, State&, std::span<std::size_t> cuts)'.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

struct Halves {
    using policy_category = zero::PartitionerCategory;
    struct State {};
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = true;
    static State begin(std::span<std::size_t const>, std::size_t) { return {}; }
};

using Stage = zero::ZeroStage<2, Halves>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
