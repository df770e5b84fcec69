// What check_kernels.cmake must find: an array in local memory, and a sum that -fmad fuses.

__global__ void in_local_memory(int* values) {
    int sums[64] = {};
    for (int item = 0; item < 1000; ++item) {
        sums[values[item]] += item;
    }
    values[0] = sums[values[0]];
}

__global__ void fused(float* values) {
    values[0] = values[1] * values[2] + values[3];
}
