# Defines zero::nccl: zero::cuda where that exists (else zero::zero and the CUDA runtime), and NCCL.

if(NOT TARGET zero::nccl)
    add_library(zero_nccl INTERFACE)
    add_library(zero::nccl ALIAS zero_nccl)
    target_link_libraries(zero_nccl INTERFACE NCCL::nccl $<IF:$<TARGET_EXISTS:zero::cuda>,zero::cuda,zero::zero> CUDA::cudart_static)
endif()
