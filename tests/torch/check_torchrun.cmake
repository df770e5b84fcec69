# cmake -DPYTHON=<python3> -DEXAMPLES=<folder examples/torch> -DTHREADS=<torch_gpt> -DFOLDER=<folder to write into> -P check_torchrun.cmake
# Two processes of torchrun, which Python starts, end with the losses of two threads in C++.

cmake_minimum_required(VERSION 3.20)

execute_process(COMMAND "${PYTHON}" -c "import setuptools, torch; from torch.utils import cpp_extension; cpp_extension.verify_ninja_availability()"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
    message("skipped: ${PYTHON} cannot load torch and build extensions of it:\n${output}")
    return()
endif()

function(loss_of text variable)
    string(REGEX MATCH "loss [0-9.]+, at first [0-9.]+" loss "${text}")
    if(loss STREQUAL "")
        message(FATAL_ERROR "no loss is printed:\n${text}")
    endif()
    set(${variable} "${loss}" PARENT_SCOPE)
endfunction()

set(ENV{TORCH_EXTENSIONS_DIR} "${FOLDER}")
set(ENV{OMP_NUM_THREADS} 1)
execute_process(COMMAND "${PYTHON}" -m torch.distributed.run --standalone --nproc-per-node 2 "${EXAMPLES}/train.py"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "torchrun failed (${result}):\n${output}${errors}")
endif()
loss_of("${output}" processes)
execute_process(COMMAND "${THREADS}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
loss_of("${output}" threads)
if(NOT processes STREQUAL threads)
    message(FATAL_ERROR "processes: ${processes}\nthreads:   ${threads}")
endif()
message("${processes}")
