# cmake -DROOT=<repository> -DCXX=<g++> -DGCOV=<gcov> -DFOLDER=<folder to write into> [-DLISTS=ON] [-DMOST_<trip>=<files>] -P check_trips.cmake
# Counts the files of include/ in which a line is executed between two calls (trips.cpp), without optimisation: what a reader opens to follow the trip. With LISTS it
# prints their names.

cmake_minimum_required(VERSION 3.20)

set(trips gradient_to_step acquire_in_stage_3 loss_scale)
set(default_gradient_to_step 80)
set(default_acquire_in_stage_3 45)
set(default_loss_scale 8)

file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
execute_process(COMMAND $ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${CXX}" -std=c++20 -O0 --coverage "-I${ROOT}/include" -c "${ROOT}/tests/headers/trips.cpp" -o trips.o
    WORKING_DIRECTORY "${FOLDER}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CXX}" --coverage trips.o -o trips -pthread WORKING_DIRECTORY "${FOLDER}" COMMAND_ERROR_IS_FATAL ANY)

set(failures 0)
foreach(trip IN LISTS trips)
    if(NOT DEFINED MOST_${trip})
        set(MOST_${trip} ${default_${trip}})
    endif()
    file(REMOVE "${FOLDER}/trips.gcda")
    execute_process(COMMAND "${FOLDER}/trips" ${trip} WORKING_DIRECTORY "${FOLDER}" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${GCOV}" -n trips.gcda WORKING_DIRECTORY "${FOLDER}" OUTPUT_VARIABLE report COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "File '[^']*/include/zero/[^']*'\nLines executed:[0-9.]+%" files "${report}")
    list(FILTER files EXCLUDE REGEX ":0\\.00%")
    list(FILTER files EXCLUDE REGEX "/comm/detail/polled_time\\.hpp'") # runs only if a rank waited for the other one
    list(TRANSFORM files REPLACE "File '.*/include/zero/([^']*)'.*" "\\1")
    list(REMOVE_DUPLICATES files)
    list(SORT files)
    list(LENGTH files count)
    message("${trip}: ${count} files (at most ${MOST_${trip}})")
    if(LISTS OR count GREATER MOST_${trip})
        list(JOIN files "\n  " lines)
        message("  ${lines}")
    endif()
    if(count EQUAL 0 OR count GREATER MOST_${trip})
        math(EXPR failures "${failures} + 1")
    endif()
endforeach()
if(failures GREATER 0)
    message(FATAL_ERROR "${failures} trips lead through more files than they may, or through none")
endif()
