// expect: zero: an Optimizer with 'whole_tensor' needs 'static std::size_t scratch_floats(std::size_t rows, std::size_t columns) noexcept'
#include "stage.hpp"

struct Normalised {
    using policy_category = zero::OptimizerCategory;
    struct Options {};
    struct Hyper {};
    static constexpr std::size_t states = 1;
    static constexpr bool whole_tensor = true;
    static void validate(Options const&) {}
    static Hyper hyper(Options const&, double, std::uint64_t) noexcept { return {}; }
    template <class Tensor>
    static void update_tensor(Tensor const&, Hyper const&) noexcept {}
};

using Stage = zero::ZeroStage<2, zero::BalancedPartitioner, Normalised>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
