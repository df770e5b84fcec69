# Looks for CUDA. Sets ZERO_HAS_CUDA if targets that need nvcc are built. The target zero::cuda exists wherever the toolkit is, even for a project that includes this one.

set(ZERO_HAS_CUDA FALSE)
find_package(CUDAToolkit 12 QUIET)
if(CUDAToolkit_FOUND)
    include("${CMAKE_CURRENT_LIST_DIR}/ZeroCudaTarget.cmake")
endif()

if(ZERO_CUDA STREQUAL "AUTO" AND (ZERO_SANITIZE OR ZERO_HEADERS_ONLY OR NOT PROJECT_IS_TOP_LEVEL OR NOT CUDAToolkit_FOUND))
    return()
elseif(NOT ZERO_CUDA)
    return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    if(ZERO_CUDA STREQUAL "AUTO")
        message(STATUS "zero: no CUDA compiler was found; the CUDA backend is not built")
        return()
    endif()
    message(FATAL_ERROR "zero: ZERO_CUDA is ON, but no CUDA compiler was found; put nvcc into PATH, set CMAKE_CUDA_COMPILER, or leave ZERO_CUDA out.")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 CACHE STRING "Real and virtual architectures of tests, benchmarks and examples") # also runs on all later devices
endif()
enable_language(CUDA)
if(NOT CUDAToolkit_FOUND)
    find_package(CUDAToolkit 12 REQUIRED)
    include("${CMAKE_CURRENT_LIST_DIR}/ZeroCudaTarget.cmake")
endif()
set(ZERO_HAS_CUDA TRUE)

# zero::cuda_compiled: zero::compiled, and the operations on a device whose kernels depend on element types alone, compiled once for CMAKE_CUDA_ARCHITECTURES. Units that link
# it include no CUB and must be compiled for the same architectures: they are in the names of the functions, so that others do not link.
add_library(zero_cuda_compiled STATIC "${CMAKE_CURRENT_LIST_DIR}/../src/cuda.cu")
add_library(zero::cuda_compiled ALIAS zero_cuda_compiled)
target_link_libraries(zero_cuda_compiled PUBLIC zero_compiled $<BUILD_INTERFACE:zero::cuda>) # zeroConfig.cmake links it for the installed library
target_compile_definitions(zero_cuda_compiled PUBLIC ZERO_CUDA_COMPILED)
set_target_properties(zero_cuda_compiled PROPERTIES OUTPUT_NAME zero_cuda EXPORT_NAME cuda_compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
if(NOT ZERO_BUILD_COMPILED)
    set_target_properties(zero_cuda_compiled PROPERTIES EXCLUDE_FROM_ALL ON) # built if a target links it
endif()
