# Finds NCCL: NCCL_FOUND, NCCL_VERSION, NCCL_ROOT_DIR and the target NCCL::nccl.
#
# The header and the library are taken from one directory, or a header would be paired with another installation's library: an error at run time at best. Looked for in
#   1. NCCL_ROOT (variable of CMake or of the environment): there and nowhere else,
#   2. the package beside LibTorch's Python package (ZERO_TORCH, TORCH_INSTALL_PREFIX), then CMAKE_PREFIX_PATH, 3. the CUDA toolkit, 4. the package nvidia-nccl of the Python interpreter in PATH, 5. /usr/local and /usr.
# A directory that holds only one of the two, or links to another installation's header, is skipped.

include(FindPackageHandleStandardArgs)

# Sets <header> and <library> to what lies under a root, or to "" unless both lie there.
function(_nccl_look_in root header library)
    set(${header} "" PARENT_SCOPE)
    set(${library} "" PARENT_SCOPE)
    find_path(_nccl_include nccl.h PATHS "${root}" PATH_SUFFIXES include NO_DEFAULT_PATH NO_CACHE)
    # Python's package has no libnccl.so. Without NAMES_PER_DIR all directories are searched for the first name before any is for the second.
    find_library(_nccl_library NAMES nccl libnccl.so.2 NAMES_PER_DIR PATHS "${root}" PATH_SUFFIXES lib lib64 "lib/${CMAKE_LIBRARY_ARCHITECTURE}" NO_DEFAULT_PATH NO_CACHE)
    if(NOT _nccl_include OR NOT _nccl_library)
        return()
    endif()
    file(REAL_PATH "${_nccl_include}/nccl.h" real_header)
    file(REAL_PATH "${_nccl_library}" real_library)
    file(REAL_PATH "${root}" real_root)
    foreach(file IN ITEMS "${real_header}" "${real_library}")
        cmake_path(IS_PREFIX real_root "${file}" is_inside)
        if(NOT is_inside)
            return()
        endif()
    endforeach()
    set(${header} "${_nccl_include}/nccl.h" PARENT_SCOPE)
    set(${library} "${_nccl_library}" PARENT_SCOPE)
endfunction()

function(_nccl_python_root result)
    set(${result} "" PARENT_SCOPE)
    find_program(NCCL_PYTHON NAMES python3 python DOC "Python interpreter whose package nvidia-nccl may hold NCCL")
    if(NCCL_PYTHON)
        execute_process(COMMAND "${NCCL_PYTHON}" -c "import importlib.util as u; print(list(u.find_spec('nvidia.nccl').submodule_search_locations)[0])"
            OUTPUT_VARIABLE path ERROR_QUIET RESULT_VARIABLE failure OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(NOT failure)
            set(${result} "${path}" PARENT_SCOPE)
        endif()
    endif()
endfunction()

function(_nccl_search header library)
    set(explicit ${NCCL_ROOT} $ENV{NCCL_ROOT})
    set(beside_torch) # LibTorch loads that one, and a process should hold one NCCL
    foreach(torch IN ITEMS "${ZERO_TORCH}" "${TORCH_INSTALL_PREFIX}")
        if(IS_DIRECTORY "${torch}/../nvidia/nccl")
            list(APPEND beside_torch "${torch}/../nvidia/nccl")
        endif()
    endforeach()
    if(explicit)
        set(roots ${explicit})
    else()
        set(roots ${beside_torch} ${CMAKE_PREFIX_PATH} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT} python /usr/local /usr)
    endif()
    foreach(root IN LISTS roots)
        if(root STREQUAL "python")
            _nccl_python_root(root)
        endif()
        if(root)
            _nccl_look_in("${root}" found_header found_library)
            if(found_header)
                set(${header} "${found_header}" PARENT_SCOPE)
                set(${library} "${found_library}" PARENT_SCOPE)
                return()
            endif()
        endif()
    endforeach()
endfunction()

set(_nccl_header "")
set(_nccl_library_file "")
_nccl_search(_nccl_header _nccl_library_file)

set(NCCL_ROOT_DIR "")
set(NCCL_VERSION "")
if(_nccl_header)
    cmake_path(GET _nccl_header PARENT_PATH _nccl_include_dir)
    cmake_path(GET _nccl_include_dir PARENT_PATH NCCL_ROOT_DIR)
    file(STRINGS "${_nccl_header}" _nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION "${_nccl_lines}")
endif()

find_package_handle_standard_args(NCCL REQUIRED_VARS _nccl_library_file _nccl_header VERSION_VAR NCCL_VERSION
    REASON_FAILURE_MESSAGE "no directory holds both include/nccl.h and lib/libnccl.so, name one with -DNCCL_ROOT=...")

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
    add_library(NCCL::nccl UNKNOWN IMPORTED)
    set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION "${_nccl_library_file}" INTERFACE_INCLUDE_DIRECTORIES "${_nccl_include_dir}")
endif()
