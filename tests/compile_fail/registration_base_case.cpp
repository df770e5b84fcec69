// compiles
#include <zero/zero.hpp>

#include <vector>

std::vector<zero::ZeroStage<2>::Registration> list(float* weight, float const* first) {
    return {{.name = "weight", .data = weight, .elements = 100},
            {.name = "bias", .initial = first, .elements = 100, .gradient = nullptr}};
}

zero::ZeroStage<2>::Options options(float* block, std::vector<float>& memory, bool is_vector) {
    zero::ZeroStage<2>::Options result{.adopted_block = {block, 100}};
    if (is_vector) {
        result.adopted_block = memory;
    }
    return result;
}

void end(zero::ZeroStage<2>& engine) {
    engine.step(0.1, [](auto const& slice) { (void)slice.weights(); });
    engine.step(0.1F);
    engine.step(1);
}

int main() {}
