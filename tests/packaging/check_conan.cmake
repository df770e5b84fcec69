# cmake -DROOT=<repository> -DVERSION=<version> -DCONAN=<conan> -DWORK=<folder> -P check_conan.cmake
# Conan creates the package of headers from this checkout and runs its consumer. It needs no network, and keeps its files in WORK.

file(REMOVE_RECURSE "${WORK}")
set(ENV{CONAN_HOME} "${WORK}")
execute_process(COMMAND "${CONAN}" profile detect OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CONAN}" create "${ROOT}/packaging/conan" -s compiler.cppstd=20 OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT output MATCHES "\nzero ${VERSION}\n")
    message(FATAL_ERROR "conan create fails (${result}):\n${output}")
endif()
file(GLOB_RECURSE packaged "${WORK}/p/b/*/p/*")
if(NOT packaged MATCHES "/include/zero/zero\\.hpp" OR packaged MATCHES "\\.(a|so)(;|$)|zero_c\\.h")
    message(FATAL_ERROR "the package does not hold the headers alone: ${packaged}")
endif()
