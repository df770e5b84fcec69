// expect: zero: 'initial', 'data' and 'gradient' of a registration point to the stage's parameter or gradient type
#include <zero/zero.hpp>

#include <vector>

std::vector<zero::ZeroStage<2>::Registration> list(double* weight) {
    return {{.name = "weight", .data = weight, .elements = 100}};
}

int main() {}
