# Defines zero::torch where ZERO_TORCH asks for it: ON finds LibTorch's own CMake package (Torch_DIR, CMAKE_PREFIX_PATH); a folder is the root of LibTorch, or of the
# Python package torch, of which the parts for the host are used (LibTorch's package would also ask for the CUDA toolkit that it was built with).

if(NOT ZERO_TORCH)
    return()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/ZeroTorchTarget.cmake")
if(IS_DIRECTORY "${ZERO_TORCH}")
    zero_import_torch("${ZERO_TORCH}")
else()
    find_package(Torch 2.4 REQUIRED)
    zero_define_torch(torch)
endif()
