# cmake -DNM=<nm> -DLIBRARY=<file> -DFUNCTION=<name> -P check_exports.cmake
# The library exports the function, no kernel and no launcher of zero, and nothing of CUB, whose names another library with another version could share.

cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES " T ${FUNCTION}\n")
    message(FATAL_ERROR "${LIBRARY} does not export ${FUNCTION}: is this the right file?\n${symbols}")
endif()
string(REGEX MATCHALL "[^\n]*(4zero4cuda6detail[0-9]+v[0-9_]+sm|__device_stub__|4zero4cuda[0-9]+v[0-9_]+sm[0-9_]+7Backend)[^\n]*" exported "${symbols}")
list(FILTER exported EXCLUDE REGEX "__cub_nvtx3_func_") # the name of a range for profilers, inside a function that is not exported
if(exported)
    list(JOIN exported "\n" text)
    message(FATAL_ERROR "${LIBRARY} exports kernels or launchers:\n${text}")
endif()
string(REGEX MATCHALL "[^\n]*3cub[^\n]*" of_cub "${symbols}")
if(of_cub)
    list(JOIN of_cub "\n" text)
    message(FATAL_ERROR "${LIBRARY} exports names of CUB that another version could share:\n${text}")
endif()
