# The flags of every test, benchmark and example of this project. Users of zero::zero get none of them.

add_library(zero_own_flags INTERFACE)
target_compile_options(zero_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>)
# clang++ before version 15 warns of the unused variable of a range-based for in templates, which has an attribute against it.
target_compile_options(zero_own_flags INTERFACE $<$<AND:$<COMPILE_LANG_AND_ID:CXX,Clang>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,15>>:-Wno-unused-variable>)
# g++ collects its garbage only beyond 1 GB, which takes a tenth of the time off a unit.
set(zero_gxx_memory --param=ggc-min-expand=1000 --param=ggc-min-heapsize=1000000)
target_compile_options(zero_own_flags INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:${zero_gxx_memory}>")
target_compile_options(zero_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>) # further warnings would concern code that nvcc generates
if(ZERO_SANITIZE)
    # Instrumented code makes g++ warn about paths that do not exist, some of them in the standard library, so its warnings are not errors here.
    target_compile_options(zero_own_flags INTERFACE "-fsanitize=${ZERO_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer
        "$<$<CXX_COMPILER_ID:GNU>:-Wno-error;-Wno-maybe-uninitialized>")
    target_link_options(zero_own_flags INTERFACE "-fsanitize=${ZERO_SANITIZE}")
    # The run-time libraries of older compilers (g++ 12, clang 14) fail at random on kernels that randomise addresses with more than 28 bits.
    # Without address randomisation they work; containers may forbid switching it off.
    find_program(ZERO_SETARCH setarch)
    if(ZERO_SETARCH)
        execute_process(COMMAND "${ZERO_SETARCH}" -R true RESULT_VARIABLE zero_setarch_result OUTPUT_QUIET ERROR_QUIET)
        if(zero_setarch_result EQUAL 0)
            set(CMAKE_CROSSCOMPILING_EMULATOR "${ZERO_SETARCH};-R")
        endif()
    endif()
endif()
if(ZERO_WARNINGS_AS_ERRORS AND NOT (ZERO_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
    target_compile_options(zero_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror> "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler=-Werror>")
endif()

# zero_own_target(<target> [COMPILED]): links zero::zero, or zero::compiled, requests standard C++20 without extensions and sets warnings and sanitizers.
function(zero_own_target target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "COMPILED" "" "")
    target_link_libraries(${target} PRIVATE $<IF:$<BOOL:${arg_COMPILED}>,zero::compiled,zero::zero> zero_own_flags)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()

# Half of the build time of all programs. A unit with engines takes 5 s instead of 9 s.
option(ZERO_OPTIMIZE_PROGRAMS "Optimise examples, benchmarks and zero::c. scripts/test.sh looks at their results alone and does not" ON)

# zero_quick_cuda(): in this folder the host part of CUDA units, which is most of the code, is not optimised, and kernels as little as nvcc can.
macro(zero_quick_cuda)
    set(CMAKE_CUDA_FLAGS_RELEASE "-O0 -DNDEBUG")
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
        string(APPEND CMAKE_CUDA_FLAGS_RELEASE " --Ofast-compile=max")
    endif()
endmacro()

# zero_own_programs(): the flags of the programs in this folder.
macro(zero_own_programs)
    if(NOT ZERO_OPTIMIZE_PROGRAMS)
        add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
        zero_quick_cuda()
    endif()
endmacro()
