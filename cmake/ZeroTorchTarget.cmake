# zero_define_torch(<target> [<library>...]): defines zero::torch, which is zero::zero and LibTorch, and zero::torch_cuda for modules on devices, where LibTorch and the
# toolkit have it. The caller has found LibTorch as <target>, and the parts of it for devices, unless the target holds them.
# All units of a program need the ABI of the standard library with which LibTorch was built; the target carries it.
function(zero_define_torch library)
    if(NOT TARGET zero::torch)
        add_library(zero_torch INTERFACE)
        add_library(zero::torch ALIAS zero_torch)
        target_link_libraries(zero_torch INTERFACE zero::zero ${library})
    endif()
    if(TARGET zero::cuda AND NOT TARGET zero::torch_cuda AND (ARGN OR TARGET torch_cuda))
        add_library(zero_torch_cuda INTERFACE)
        add_library(zero::torch_cuda ALIAS zero_torch_cuda)
        target_link_libraries(zero_torch_cuda INTERFACE zero::torch zero::cuda ${ARGN})
    endif()
endfunction()

# The values of ZERO_TORCH that ask for LibTorch's own CMake package. Others name a folder.
set(zero_torch_by_package "^([Oo][Nn]|[Yy][Ee][Ss]|[Tt][Rr][Uu][Ee]|[Yy]|[1-9][0-9]*)$")

# zero_import_torch(<folder>): defines zero::torch from the host part of the LibTorch in a folder, for instance <site-packages>/torch.
function(zero_import_torch root)
    if(TARGET zero::torch)
        return()
    endif()
    foreach(file IN ITEMS include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so share/cmake/Torch/TorchConfig.cmake)
        if(NOT EXISTS "${root}/${file}")
            message(FATAL_ERROR "zero: ZERO_TORCH names ${root}, which has no ${file}; name the root of LibTorch, or the folder 'torch' of the Python package")
        endif()
    endforeach()
    add_library(zero_torch_library INTERFACE)
    target_include_directories(zero_torch_library SYSTEM INTERFACE "${root}/include" "${root}/include/torch/csrc/api/include")
    file(READ "${root}/share/cmake/Torch/TorchConfig.cmake" config)
    if(config MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
        target_compile_definitions(zero_torch_library INTERFACE "_GLIBCXX_USE_CXX11_ABI=${CMAKE_MATCH_1}")
    endif()
    target_link_libraries(zero_torch_library INTERFACE "${root}/lib/libtorch_cpu.so" "${root}/lib/libc10.so")
    # The wheel with CUDA loads two libraries that lie in packages beside it.
    file(GLOB folders "${root}/../nvidia/*/lib")
    foreach(folder IN LISTS folders)
        target_link_options(zero_torch_library INTERFACE "LINKER:-rpath-link,${folder}")
    endforeach()
    target_link_options(zero_torch_library INTERFACE "LINKER:--no-as-needed") # torch_cpu registers its operators when it is loaded
    file(GLOB device_libraries "${root}/lib/libtorch_cuda.so" "${root}/lib/libc10_cuda.so")
    zero_define_torch(zero_torch_library ${device_libraries})
endfunction()
