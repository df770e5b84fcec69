# Looks for NCCL where the CUDA toolkit is, and defines zero::nccl. The communicator itself is tested on the host without either (tests/cuda/nccl_*_test.cpp);
# tests/cuda/nccl.cmake compiles and links it with the real one.

set(ZERO_HAS_NCCL FALSE)
find_package(CUDAToolkit 12 QUIET)
if(CUDAToolkit_FOUND)
    list(PREPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
    find_package(NCCL 2.19 QUIET)
    list(POP_FRONT CMAKE_MODULE_PATH)
    if(NCCL_FOUND) # asked only here: a project that includes this one may have found NCCL by other means
        set(ZERO_HAS_NCCL TRUE)
        message(STATUS "zero: NCCL ${NCCL_VERSION} in ${NCCL_ROOT_DIR}")
        include("${CMAKE_CURRENT_LIST_DIR}/ZeroNcclTarget.cmake")
    endif()
endif()

if(ZERO_INSTALL)
    install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake" "${CMAKE_CURRENT_LIST_DIR}/ZeroNcclTarget.cmake" DESTINATION "${zero_package_dir}")
endif()
