// expect: zero: a Bucketer needs 'static std::size_t take(
#include "stage.hpp"

struct Greedy {
    using policy_category = zero::BucketerCategory;
    struct Options {};
    static constexpr bool may_span_units = false;
    static void validate(Options const&) {}
    static bool take(std::span<zero::BucketItem const>, Options const&, std::size_t) {
        return true;
    }
};

using Stage = zero::ZeroStage<2, Greedy>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
