#pragma once

// The parts of CUB that the kernels use, for the emulated device: found instead of CUB's headers of
// these names. tests/cuda/cub_test.cu compares each with CUB's documentation, here and on a device.

#if !defined(CUB_VERSION) // a test compiles for an older one
#define CUB_VERSION 300001
#endif
#define CUB_NS_QUALIFIER ::cub
