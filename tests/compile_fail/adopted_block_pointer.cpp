// expect: zero: adopted_block needs the length of the block as well; write .adopted_block = {pointer, elements}.
#include <zero/zero.hpp>

zero::ZeroStage<2>::Options options(float* block) {
    return {.storage = zero::Storage::adopted, .adopted_block = block};
}

int main() {}
