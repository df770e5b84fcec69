// Defined as by nvcc; 'all' of CUDA 13.0 is 12 architectures.
#define __CUDACC__
#define __CUDA_ARCH_LIST__ 750, 800, 860, 870, 880, 890, 900, 1000, 1030, 1100, 1200, 1210
#include <zero/cuda/detail/kernels/config.cuh>
#undef __CUDACC__

#include "support/catch.hpp"

#include <string>

#define ZERO_TEXT_OF(...) #__VA_ARGS__
#define ZERO_TEXT(...) ZERO_TEXT_OF(__VA_ARGS__)

namespace zero::test::architectures_test {

namespace kernels::ZERO_CUDA_NAMESPACE {} // namespace kernels::ZERO_CUDA_NAMESPACE

TEST_CASE("The name of the kernels' namespace lists all architectures that nvcc can compile for at "
          "once") {
    CHECK(std::string(ZERO_TEXT(ZERO_CUDA_NAMESPACE))
          == "inline v0_2_0_sm_750_800_860_870_880_890_900_1000_1030_1100_1200_1210");
#undef __CUDA_ARCH_LIST__
#define __CUDA_ARCH_LIST__ 800
    CHECK(std::string(ZERO_TEXT(ZERO_CUDA_NAMESPACE)) == "inline v0_2_0_sm_800");
#undef __CUDA_ARCH_LIST__
#define __CUDA_ARCH_LIST__                                                                         \
    500, 520, 530, 600, 610, 620, 700, 720, 750, 800, 860, 870, 880, 890, 900, 1000, 1010, 1030,   \
        1100, 1200, 1210, 1300, 1310, 1320
    CHECK(std::string(ZERO_TEXT(ZERO_CUDA_NAMESPACE))
          == "inline "
             "v0_2_0_sm_500_520_530_600_610_620_700_720_750_800_860_870_880_890_900_1000_1010_1030"
             "_1100_1200_1210_1300_1310_1320");
#undef __CUDA_ARCH_LIST__
}

TEST_CASE("More than 24 architectures are distinguished from fewer") {
    CHECK(ZERO_CUDA_COUNT(500) == 1);
    CHECK(ZERO_CUDA_COUNT(500, 520, 530, 600, 610, 620, 700, 720, 750, 800, 860, 870, 880, 890, 900,
                          1000, 1010, 1030, 1100, 1200, 1210, 1300, 1310, 1320)
          == 24);
    CHECK(ZERO_CUDA_COUNT(500, 520, 530, 600, 610, 620, 700, 720, 750, 800, 860, 870, 880, 890, 900,
                          1000, 1010, 1030, 1100, 1200, 1210, 1300, 1310, 1320, 1330)
          > 24);
}

} // namespace zero::test::architectures_test
