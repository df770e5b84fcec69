# Read by CTest: lists the test cases of zero_executable and adds each as one test. See ZeroDiscoverTests.cmake.

function(zero_add_broken_executable why)
    set(name "${zero_prefix}: the executable lists its test cases")
    add_test("${name}" "${zero_cmake}" -E echo "zero: ${zero_executable} ${why}")
    set_tests_properties("${name}" PROPERTIES LABELS "${zero_labels}" FAIL_REGULAR_EXPRESSION "zero: ")
endfunction()

function(zero_add_tests)
    if(NOT EXISTS "${zero_executable}")
        zero_add_broken_executable("was not built")
        return()
    endif()
    if(zero_catch_major LESS 3)
        set(list_arguments --list-test-names-only)
        set(run_arguments "") # tests/support/main.cpp sets the warnings
    else()
        set(list_arguments --list-tests --verbosity quiet)
        set(run_arguments --warn NoAssertions)
    endif()
    execute_process(COMMAND ${zero_launcher} "${zero_executable}" ${list_arguments} OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)

    # Lines are taken off one by one: a CMake list would join or split names that contain brackets or semicolons.
    set(count 0)
    string(APPEND output "\n")
    while(NOT output STREQUAL "")
        string(FIND "${output}" "\n" end)
        string(SUBSTRING "${output}" 0 ${end} name)
        math(EXPR end "${end} + 1")
        string(SUBSTRING "${output}" ${end} -1 output)
        if(name STREQUAL "")
            continue()
        endif()
        math(EXPR count "${count} + 1")
        string(REPLACE "\\" "\\\\" pattern "${name}")
        foreach(character IN ITEMS "," "[" "\"")
            string(REPLACE "${character}" "\\${character}" pattern "${pattern}")
        endforeach()
        add_test("${zero_prefix}: ${name}" ${zero_launcher} "${zero_executable}" "${pattern}" ${run_arguments})
        set_tests_properties("${zero_prefix}: ${name}" PROPERTIES LABELS "${zero_labels}" TIMEOUT ${zero_timeout} COST ${zero_cost}
            SKIP_REGULAR_EXPRESSION "skipped: no CUDA device")
    endwhile()

    # Catch2 2 returns the number of cases, of which the system keeps eight bits.
    set(expected 0)
    if(zero_catch_major LESS 3)
        math(EXPR expected "${count} % 256")
    endif()
    if(count EQUAL 0 OR NOT result STREQUAL expected)
        zero_add_broken_executable("could not list its test cases (result ${result}): ${errors}")
    endif()
endfunction()

zero_add_tests()
