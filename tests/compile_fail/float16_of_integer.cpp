// expect: deleted
// nvcc
#include <zero/core/convert.hpp>

auto const rounded = zero::from_float<zero::float16>(1.0F); // allowed
auto const of_bits = zero::float16::from_bits(1);           // allowed
auto const refused = zero::float16(1);

int main() {}
