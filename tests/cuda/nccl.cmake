# Tests of the NCCL communicator that are not test cases: the search for NCCL, and the real library.

set(name "cuda: NCCL's header and library are found in one place")
add_test(NAME "${name}" COMMAND "${CMAKE_COMMAND}" "-DMODULES=${PROJECT_SOURCE_DIR}/cmake" "-DPROJECT=${CMAKE_CURRENT_LIST_DIR}/find_nccl"
    "-DWORK=${PROJECT_BINARY_DIR}/tests/find_nccl" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DGENERATOR=${CMAKE_GENERATOR}" -P "${CMAKE_CURRENT_LIST_DIR}/find_nccl/run.cmake")
set_tests_properties("${name}" PROPERTIES LABELS cuda TIMEOUT 300)

if(ZERO_HAS_NCCL AND NOT ZERO_SANITIZE)
    add_executable(zero_linked_nccl_test "${CMAKE_CURRENT_LIST_DIR}/linked_nccl.cpp")
    zero_own_target(zero_linked_nccl_test)
    target_link_libraries(zero_linked_nccl_test PRIVATE zero::nccl)
    set(name "cuda: the communicator over the real NCCL, and its typed errors without a device")
    add_test(NAME "${name}" COMMAND zero_linked_nccl_test)
    set_tests_properties("${name}" PROPERTIES LABELS cuda TIMEOUT 300)
endif()
