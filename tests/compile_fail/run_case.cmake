# cmake -DCOMPILER=<compiler> -DFILE=<case> -DROOT=<repository> [-DHOST=<host compiler of nvcc>] [-DPRECOMPILED=<header>] -P run_case.cmake
#
# Compiles one case, with the precompiled <header>.gch if it is given (g++: in the form of zero::compiled), and compares the outcome with the comments at the top of its file. nvcc compiles it as CUDA code, up to PTX.
#
#   // expect: <text>        the compiler refuses the file and prints this text. May be repeated; the first error contains the first text.
#   // errors-at-most: <n>   the largest number of errors, by default 3
#   // compiles              instead of the above: a base case, which must compile
#   // nvcc                  nvcc compiles the case as well
#   // only nvcc             nvcc alone compiles it, with its host compiler

function(complain text)
    message("${FILE}: ${text}\n--- ${COMPILER} printed:\n${output}")
    message(FATAL_ERROR "the case failed: ${text}")
endfunction()

file(READ "${FILE}" source)
string(REGEX MATCH "^(//[^\n]*\n)+" block "${source}")
set(expectations "")
set(expectation_count 0)
set(errors_at_most 3)
set(must_compile FALSE)
while(NOT block STREQUAL "")
    string(FIND "${block}" "\n" end)
    string(SUBSTRING "${block}" 0 ${end} line)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${block}" ${end} -1 block)
    if(line MATCHES "^// expect: (.+)$")
        set(expectation_${expectation_count} "${CMAKE_MATCH_1}")
        math(EXPR expectation_count "${expectation_count} + 1")
    elseif(line MATCHES "^// errors-at-most: ([0-9]+)$")
        set(errors_at_most ${CMAKE_MATCH_1})
    elseif(line MATCHES "^// compiles$")
        set(must_compile TRUE)
    endif()
endwhile()

if(PRECOMPILED AND COMPILER MATCHES "clang")
    set(precompiled -include-pch "${PRECOMPILED}.gch")
elseif(PRECOMPILED)
    set(precompiled -DZERO_COMPILED -include "${PRECOMPILED}")
endif()

# English messages with plain quotes and no colours.
set(ENV{LC_ALL} C)
set(check_only -fsyntax-only -fno-diagnostics-color)
if(COMPILER MATCHES "nvcc$")
    set(output_kind -ptx)
    if(source MATCHES "\n// only nvcc\n")
        set(output_kind -c)
    endif()
    set(check_only -x cu -arch=sm_80 -ccbin "${HOST}" ${output_kind} -o /dev/null)
endif()
execute_process(
    COMMAND "${COMPILER}" -std=c++20 ${check_only} ${precompiled} "-I${ROOT}/include" "-I${ROOT}/tests/compile_fail" "${FILE}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error_output)
string(APPEND output "${error_output}")

if(must_compile)
    if(expectation_count GREATER 0)
        complain("it contains both '// compiles' and '// expect:'")
    elseif(NOT result EQUAL 0)
        complain("this base case must compile, but the compiler refused it")
    endif()
    return()
endif()
if(expectation_count EQUAL 0)
    complain("its first lines contain neither '// expect: <text>' nor '// compiles'")
endif()
if(result EQUAL 0)
    complain("it compiles, but must be refused")
endif()

math(EXPR last "${expectation_count} - 1")
foreach(index RANGE ${last})
    string(FIND "${output}" "${expectation_${index}}" position)
    if(position LESS 0)
        complain("the text '${expectation_${index}}' is missing from the compiler's output")
    endif()
endforeach()

# Reads line by line, because brackets and semicolons in the output would break a CMake list.
set(error_count 0)
set(first_error "")
set(rest "${output}\n")
while(NOT rest STREQUAL "")
    string(FIND "${rest}" "\n" end)
    string(SUBSTRING "${rest}" 0 ${end} line)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${rest}" ${end} -1 rest)
    if(line MATCHES "error: ")
        math(EXPR error_count "${error_count} + 1")
        if(error_count EQUAL 1)
            set(first_error "${line}")
        endif()
    endif()
endwhile()
string(FIND "${first_error}" "${expectation_0}" position)
if(position LESS 0)
    complain("the first error is not the expected one: ${first_error}")
endif()
if(error_count GREATER errors_at_most)
    complain("${error_count} errors, at most ${errors_at_most} are allowed")
endif()
