# Defines zero::torch, and zero::torch_compiled on top of the compiled library, where ZERO_TORCH asks for them: ON finds LibTorch's own CMake package (Torch_DIR, CMAKE_PREFIX_PATH); a folder is the root of LibTorch, or of the
# Python package torch, of which the parts for the host are used (LibTorch's package would also ask for the CUDA toolkit that it was built with).

if(NOT ZERO_TORCH)
    return()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/ZeroTorchTarget.cmake")
if(NOT ZERO_TORCH MATCHES "${zero_torch_by_package}")
    zero_import_torch("${ZERO_TORCH}")
else()
    find_package(Torch 2.4 REQUIRED)
    zero_define_torch(torch)
endif()

# The compiled library, with the ABI of LibTorch, which may differ from that of zero::compiled.
add_library(zero_torch_compiled STATIC ${zero_compiled_sources} "${CMAKE_CURRENT_LIST_DIR}/../src/torch.cpp")
add_library(zero::torch_compiled ALIAS zero_torch_compiled)
target_link_libraries(zero_torch_compiled PUBLIC zero::torch PRIVATE $<BUILD_INTERFACE:zero_own_flags>)
target_compile_definitions(zero_torch_compiled PUBLIC ZERO_COMPILED)
set_target_properties(zero_torch_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
set_target_properties(zero_torch_compiled PROPERTIES EXCLUDE_FROM_ALL ON) # built if something links it
