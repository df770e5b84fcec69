# cmake -DNM=<nm> -DLIBRARY=<file> -DFUNCTION=<name> -P check_exports.cmake
# The library exports the function, and no kernel and no launcher of zero.

cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES " T ${FUNCTION}\n")
    message(FATAL_ERROR "${LIBRARY} does not export ${FUNCTION}: is this the right file?\n${symbols}")
endif()
string(REGEX MATCHALL "[^\n]*(4zero4cuda6detail[0-9]+v[0-9_]+sm|__device_stub__|4zero4cuda[0-9]+v[0-9_]+sm[0-9_]+7Backend)[^\n]*" exported "${symbols}")
if(exported)
    list(JOIN exported "\n" text)
    message(FATAL_ERROR "${LIBRARY} exports kernels or launchers:\n${text}")
endif()
