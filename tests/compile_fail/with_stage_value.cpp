// expect: zero::with_stage: the body gets the stage as a template argument and nothing else; write [&]<int N>() { ... }.
// nvcc
#include <zero/zero.hpp>

int main() {
    zero::with_stage(2, [](auto stage) { (void)stage; });
}
