// expect: zero: an Optimizer needs 'static constexpr std::size_t states'
// nvcc
#include "stage.hpp"

struct Descent {
    using policy_category = zero::OptimizerCategory;
    struct Options {};
    struct Hyper {};
    static constexpr bool whole_tensor = false;
    static void validate(Options const&) {}
    static Hyper hyper(Options const&, double, std::uint64_t) noexcept { return {}; }
};

using Stage = zero::ZeroStage<2, Descent>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
