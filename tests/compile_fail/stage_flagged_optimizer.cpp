// expect: zero: an Optimizer with 'whole_tensor' needs 'template <class Tensor> static void update_tensor(Tensor const&, Hyper const&) noexcept'
#include "stage.hpp"

struct Flagged
    : zero::Sgd { // has the functor of a per-element optimizer, not of a whole-tensor one
    static constexpr bool whole_tensor = true;
    static std::size_t scratch_floats(std::size_t, std::size_t) noexcept { return 0; }
};

using Stage = zero::ZeroStage<2, zero::BalancedPartitioner, Flagged>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
