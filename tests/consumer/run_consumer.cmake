# Configures, builds and runs the project of a user who takes the library in one WAY; see CMakeLists.txt.

file(REMOVE_RECURSE "${WORK}")
set(prefix "${WORK}/prefix")
if(WAY STREQUAL "find_package")
    execute_process(COMMAND "${CMAKE_COMMAND}" --install "${ZERO_BUILD}" --prefix "${prefix}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endif()
execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${PROJECT}" -B "${WORK}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DWAY=${WAY}" "-DZERO_ROOT_DIR=${ROOT}"
        "-DCMAKE_PREFIX_PATH=${prefix}" "-DVERSION=${VERSION}"
    COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK}/build/consumer" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output STREQUAL "zero ${VERSION}\n")
    message(FATAL_ERROR "the consumer printed '${output}', not 'zero ${VERSION}'")
endif()
