#pragma once

// The parts of CUB that the kernels use, for the emulated device: found instead of CUB's headers of
// these names. tests/cuda/cub_test.cu compares each with CUB's documentation, here and on a device.

#define CUB_VERSION 300001
#define CUB_NS_QUALIFIER ::cub
