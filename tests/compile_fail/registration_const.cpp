// expect: zero: training writes 'data' and 'gradient' of a registration, but this pointer is const
// nvcc
#include <zero/zero.hpp>

#include <vector>

std::vector<zero::ZeroStage<2>::Registration> list(float const* weight) {
    return {{.name = "weight", .data = weight, .elements = 100}};
}

int main() {}
