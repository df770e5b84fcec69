// expect: zero: hand_over() reads the gradient after the call, when this temporary container has ended; keep it until the returned event is complete.
// nvcc
#include <zero/zero.hpp>

#include <memory>
#include <vector>

using Stage = zero::ZeroStage<2>;

void accepted(Stage& engine, std::shared_ptr<std::vector<float>> const& kept) {
    std::vector<float> const gradient(3);
    engine.hand_over(0, 0, gradient);
    engine.hand_over(0, 0, {gradient.data(), 3});
    engine.hand_over(0, 0, std::span(gradient));
    engine.hand_over<float>(0, 0, *kept, {}, kept);
}

void refused(Stage& engine) {
    engine.hand_over(0, 0, std::vector<float>(3), {}, {});
}

int main() {}
