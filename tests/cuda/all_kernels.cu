#include "cuda/all_kernels.cuh"

std::size_t number_of_kernels();

std::size_t number_of_kernels() {
    return zero::test::all_kernels().size();
}
