// expect: zero: a Partitioner needs a copyable member type 'State' (what it carries from bucket to bucket).
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

struct Turns {
    using policy_category = zero::PartitionerCategory;
    static constexpr bool cuts_parameters = true;
    static constexpr bool cuts_group = false;
    static constexpr bool is_even = true;
    static void partition(std::span<zero::PartitionItem>, std::size_t& turn,
                          std::span<std::size_t>) {
        ++turn;
    }
};

using Stage = zero::ZeroStage<2, Turns>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
