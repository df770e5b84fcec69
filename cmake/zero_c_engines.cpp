// The engines of zero::c in one unit (ZeroC.cmake). A program does not link if one is missing here.

#include "../src/c/bfloat16_adamw.cpp"
#include "../src/c/bfloat16_sgd.cpp"
#include "../src/c/float16_adamw.cpp"
#include "../src/c/float16_sgd.cpp"
#include "../src/c/float_adamw.cpp"
#include "../src/c/float_sgd.cpp"
