# cmake -DPROGRAM=<c_resume> -DFOLDER=<folder to write into> -P check_resume.cmake
# A training that was stopped and resumed ends as one that ran through; damage is told with its cause by the rank that ends the program.

cmake_minimum_required(VERSION 3.20)

function(run expected_status result)
    execute_process(COMMAND "${PROGRAM}" ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE error RESULT_VARIABLE status)
    if(NOT status EQUAL expected_status)
        message(FATAL_ERROR "${ARGN}: ${status}\n${output}${error}")
    endif()
    set(${result} "${output}${error}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${FOLDER}")
run(0 through 2 "${FOLDER}/through" 300)
run(0 first 2 "${FOLDER}/parts" 100)
run(0 second 2 "${FOLDER}/parts" 300)
if(first STREQUAL through OR NOT second STREQUAL through OR NOT through MATCHES "^step 300: loss 0\\.0")
    message(FATAL_ERROR "through: ${through}\nfirst: ${first}\nsecond: ${second}")
endif()
run(0 third 3 "${FOLDER}/parts" 400) # on another number of ranks

# Every rank knows the cause, so it does not matter which of them ends the program.
file(GLOB files "${FOLDER}/parts/step-*/*.safetensors")
foreach(file IN LISTS files)
    file(WRITE "${file}" "damaged")
endforeach()
foreach(turn RANGE 5)
    run(1 damaged 4 "${FOLDER}/parts" 500)
    if(NOT damaged MATCHES "safetensors")
        message(FATAL_ERROR "no cause: ${damaged}")
    endif()
endforeach()
