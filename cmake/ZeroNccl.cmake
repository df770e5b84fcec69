# Looks for NCCL where the CUDA toolkit is, and makes zero::nccl. The communicator itself is tested on the host without either (tests/cuda/nccl_*_test.cpp); here
# it is compiled and linked with the real one.

set(ZERO_HAS_NCCL FALSE)
find_package(CUDAToolkit 12 QUIET)
if(CUDAToolkit_FOUND)
    list(PREPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
    find_package(NCCL 2.19 QUIET)
    list(POP_FRONT CMAKE_MODULE_PATH)
endif()
if(NCCL_FOUND)
    set(ZERO_HAS_NCCL TRUE)
    message(STATUS "zero: NCCL ${NCCL_VERSION} in ${NCCL_ROOT_DIR}")
    include("${CMAKE_CURRENT_LIST_DIR}/ZeroNcclTarget.cmake")
endif()

if(ZERO_INSTALL)
    install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake" "${CMAKE_CURRENT_LIST_DIR}/ZeroNcclTarget.cmake" DESTINATION "${zero_package_dir}")
endif()

if(ZERO_BUILD_TESTS)
    add_test(NAME "cuda: NCCL's header and library are found in one place" COMMAND "${CMAKE_COMMAND}" "-DMODULES=${CMAKE_CURRENT_LIST_DIR}"
        "-DPROJECT=${PROJECT_SOURCE_DIR}/tests/cuda/find_nccl" "-DWORK=${PROJECT_BINARY_DIR}/tests/find_nccl" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DGENERATOR=${CMAKE_GENERATOR}"
        -P "${PROJECT_SOURCE_DIR}/tests/cuda/find_nccl/run.cmake")
    set_tests_properties("cuda: NCCL's header and library are found in one place" PROPERTIES LABELS cuda TIMEOUT 300)
endif()
if(ZERO_BUILD_TESTS AND ZERO_HAS_NCCL AND NOT ZERO_SANITIZE)
    add_executable(zero_linked_nccl_test "${PROJECT_SOURCE_DIR}/tests/cuda/linked_nccl.cpp")
    zero_own_target(zero_linked_nccl_test)
    target_link_libraries(zero_linked_nccl_test PRIVATE zero::nccl)
    add_test(NAME "cuda: the communicator links the real NCCL and fails with typed errors without a device" COMMAND zero_linked_nccl_test)
    set_tests_properties("cuda: the communicator links the real NCCL and fails with typed errors without a device" PROPERTIES LABELS cuda TIMEOUT 120 SKIP_RETURN_CODE 77)
endif()
