# Defines zero::cuda: zero::zero, the CUDA runtime, and what nvcc needs to be told. CUDA_STANDARD 20 would not do: without a compiler that CMake knows to support it,
# it becomes C++17 without a word. The sources that use it are the consumer's own; CMake's language CUDA is the consumer's to enable.

if(NOT TARGET zero::cuda)
    add_library(zero_cuda INTERFACE)
    add_library(zero::cuda ALIAS zero_cuda)
    target_link_libraries(zero_cuda INTERFACE zero::zero CUDA::cudart_static)
    target_compile_options(zero_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr>)
endif()
