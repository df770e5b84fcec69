# Defines zero::cuda: zero::zero, the CUDA runtime, and the options that nvcc needs. CUDA_STANDARD 20 does not suffice: unless CMake knows that the compiler supports it,
# it silently becomes C++17. The sources that use it are the consumer's own; the consumer enables CMake's language CUDA.

if(NOT TARGET zero::cuda)
    add_library(zero_cuda INTERFACE)
    add_library(zero::cuda ALIAS zero_cuda)
    target_link_libraries(zero_cuda INTERFACE zero::zero CUDA::cudart_static)
    target_compile_options(zero_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
endif()
